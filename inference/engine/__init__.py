"""The engine worker: hosts backends inside a Celery worker and serves their models' queues."""
