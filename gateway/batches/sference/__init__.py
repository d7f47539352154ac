"""sference's inline batches: many chat requests in one body (contracts 1.3)."""
