"""Batches in three dialects: their rows are read, kept, shown and answered here."""
