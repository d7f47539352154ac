"""The inference app's registration with Django."""

from django.apps import AppConfig


class InferenceConfig(AppConfig):
    """The engine room."""

    name = "inference"
    verbose_name = "Inference"

    def ready(self) -> None:
        """Register the system checks."""
        from inference import checks  # noqa: F401
