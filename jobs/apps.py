"""The jobs app's registration with Django."""

from django.apps import AppConfig


class JobsConfig(AppConfig):
    """What lasts."""

    name = "jobs"
    verbose_name = "Jobs"
