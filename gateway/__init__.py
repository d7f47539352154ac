"""The front door: Django project, HTTP dialects, keys, admin."""
