#!/usr/bin/env python
"""Django's entry point."""

import os
import sys


def main() -> None:
    """Run a management command."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
    from django.core.management import execute_from_command_line

    from gateway.config import ConfigError

    try:
        execute_from_command_line(sys.argv)
    except ConfigError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
