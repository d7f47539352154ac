"""English: the only language there is."""
