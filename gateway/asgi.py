"""The ASGI application that Daphne serves: the API ahead of Django's admin and pages."""

from __future__ import annotations

import os

from channels.routing import ProtocolTypeRouter
from django.conf import settings
from django.core.asgi import get_asgi_application


def _application() -> ProtocolTypeRouter:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
    # First: it loads Django's apps, which the imports below need.
    django_application = get_asgi_application()

    from gateway.front import Front
    from gateway.http.daphne import be_strict
    from gateway.routes import is_upload
    from gateway.services import Services
    from gateway.sockets import sockets
    from inference.engine.options import transport_options

    be_strict(is_upload)
    transport = transport_options()
    services = Services(settings.TANDEM, transport)
    role = settings.TANDEM.GATEWAY_ROLE
    front = Front(services, django_application, role)
    pages = sockets(services, transport, role)
    return ProtocolTypeRouter({"http": front, "websocket": pages})


application = _application()
