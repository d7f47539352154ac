"""Fetch the default model and put it into the catalogue."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError

from inference.weights import (
    DEFAULT_MODEL,
    WeightsError,
    fetch_default_weights,
    register_default_model,
)


class Command(BaseCommand):
    help = "Fetch the default model's weights, if they are not there, and list it in the catalogue."

    def handle(self, *args: Any, **options: Any) -> None:
        models_dir: Path = settings.TANDEM.DATA_DIR / "models"
        try:
            folder = fetch_default_weights(models_dir, self._report, bars=sys.stderr.isatty())
        except WeightsError as error:
            raise CommandError(str(error)) from None
        self._report(f"{DEFAULT_MODEL} is in {folder}")
        try:
            register_default_model()
        except OperationalError:
            self._report("The database is not up: serve will list the model when it starts.")

    def _report(self, line: str) -> None:
        self.stderr.write(line, lambda text: text)
