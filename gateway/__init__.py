"""The front door: Django project, HTTP dialects, keys, admin."""

__version__ = "0.1.0"
