"""The control API: a team sees what it did, used and paid, and manages its keys."""
