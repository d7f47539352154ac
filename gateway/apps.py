"""The gateway app's registration with Django, and that of the admin with a site of our own."""

from django.apps import AppConfig
from django.contrib.admin.apps import SimpleAdminConfig


class OperatorAdminConfig(SimpleAdminConfig):
    """Django's admin, in which nothing but our own tables is registered."""

    default_site = "gateway.admin.site.OperatorSite"

    def ready(self) -> None:
        """Register the tables."""
        super().ready()
        from gateway.admin import tables  # noqa: F401


class GatewayConfig(AppConfig):
    """The front door."""

    name = "gateway"
    verbose_name = "Gateway"

    def ready(self) -> None:
        """Register the system checks."""
        from gateway import checks  # noqa: F401
