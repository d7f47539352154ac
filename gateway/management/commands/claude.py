"""Starts Claude Code on a model of a gateway, here or elsewhere."""

from __future__ import annotations

import os
import shutil
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from gateway.claude_code import (
    KEY_VARIABLE,
    ClaudeCodeError,
    Gateway,
    apply,
    base_url,
    changes,
    shell_lines,
    warnings,
)
from gateway.supervise.serving import reachable_host

_INSTALL = "npm install -g @anthropic-ai/claude-code"


class Command(BaseCommand):
    help = (
        "Starts Claude Code on a model of Tandem: checks that the gateway serves it, sets the "
        "environment, and becomes claude. What follows -- is handed on to it."
    )
    # It needs no database: the gateway may be on another machine.
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        config = settings.TANDEM
        parser.add_argument("--model", required=True, help="id or alias of a model")
        parser.add_argument(
            "--url",
            default=f"http://{reachable_host(config.HOST)}:{config.PORT}",
            help="address of the gateway (%(default)s)",
        )
        parser.add_argument(
            "--key", help=f"API key; better in the environment variable {KEY_VARIABLE}"
        )
        parser.add_argument(
            "--print-env",
            action="store_true",
            help="print the environment, key included, as lines for a shell, and start nothing",
        )
        parser.add_argument("arguments", nargs="*", metavar="ARGUMENT", help="handed on to claude")

    def handle(
        self,
        *args: Any,
        model: str,
        url: str,
        key: str | None,
        print_env: bool,
        arguments: list[str],
        **options: Any,
    ) -> None:
        program = shutil.which("claude")
        try:
            if program is None and not print_env:
                raise ClaudeCodeError(f"Claude Code is not installed: {_INSTALL}")
            address = base_url(url)
            token = (key or os.environ.get(KEY_VARIABLE, "")).strip()
            if not token:
                raise ClaudeCodeError(
                    f"no API key: set {KEY_VARIABLE} to one that `manage.py create_api_key NAME` "
                    "prints where Tandem runs"
                )
            served = Gateway(address, token).find(model)
        except ClaudeCodeError as error:
            raise CommandError(str(error)) from None
        for warning in warnings(served):
            self.stderr.write(self.style.WARNING(warning))
        needed = changes(served, address, token, os.environ)
        if print_env or program is None:
            self.stdout.write(shell_lines(needed))
            return
        os.execve(program, [program, *arguments], apply(needed, os.environ))  # noqa: S606
