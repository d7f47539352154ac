"""What lasts: the Celery app, its tasks, and (as they come) files, batches, ledger and audit."""
