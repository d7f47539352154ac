"""The inference app's registration with Django."""

from django.apps import AppConfig


class InferenceConfig(AppConfig):
    """The engine room."""

    name = "inference"
    verbose_name = "Inference"
