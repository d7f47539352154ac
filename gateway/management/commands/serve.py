"""Run everything on this machine."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import Any, NoReturn

from django.core.management.base import BaseCommand, CommandError

from gateway.config import load
from gateway.supervise.console import Progress
from gateway.supervise.exclusive import TakenError, check_port, hold_data_dir
from gateway.supervise.layout import Layout
from gateway.supervise.serving import ServeError, serve
from gateway.supervise.supervisord import SupervisordError


class Command(BaseCommand):
    help = (
        "Run gateway, engines, clerk, beat and the embedded servers on this machine, "
        "restart what dies, and stop all of it on SIGTERM or Ctrl-C."
    )
    # They need the database, which is not up yet.
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        config = load()
        layout = Layout(config.DATA_DIR)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _stop)
        try:
            layout.create()
            with hold_data_dir(layout) as held:
                check_port(config.HOST, config.PORT)
                serve(config, layout, held, Progress(sys.stdout))
        except (TakenError, ServeError, SupervisordError, PermissionError) as error:
            raise CommandError(str(error)) from None


def _stop(signum: int, frame: FrameType | None) -> NoReturn:
    """End the command from wherever it is; the way out stops everything."""
    raise SystemExit(0)
