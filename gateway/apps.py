"""The gateway app's registration with Django."""

from django.apps import AppConfig


class GatewayConfig(AppConfig):
    """The front door."""

    name = "gateway"
    verbose_name = "Gateway"

    def ready(self) -> None:
        """Register the system checks."""
        from gateway import checks  # noqa: F401
