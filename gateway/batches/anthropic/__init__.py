"""Anthropic's Message Batches: many Messages requests in one body (contracts 6)."""
