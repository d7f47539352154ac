"""Screenshots: kept from every run, and the best of them put into the documentation.

`python -m tests.browser.pictures` copies those that the documentation shows, made small.
"""

from __future__ import annotations

import os
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page

_ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("SCREENSHOTS_DIR", _ROOT / "build" / "screenshots"))
DOCUMENTED = _ROOT / "docs" / "images"
_COLOURS = 256

SHOWN = (
    "dashboard-laptop-light",
    "dashboard-laptop-dark",
    "dashboard-phone-light",
    "request-laptop-light",
    "playground-answer",
    "batch-laptop-light",
    "first-run-laptop-light",
)
"""What README.md and docs/admin.md show."""


def begin() -> None:
    """Remove the pictures of the run before."""
    for picture in FOLDER.glob("*.png"):
        picture.unlink()


def keep(page: Page, name: str) -> None:
    """Keep what the page shows now."""
    page.screenshot(path=FOLDER / f"{name}.png", animations="disabled")


def publish() -> None:
    """Put the pictures that the documentation shows into it, with fewer colours."""
    DOCUMENTED.mkdir(parents=True, exist_ok=True)
    for name in SHOWN:
        with Image.open(FOLDER / f"{name}.png") as picture:
            few = picture.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE)
            few.save(DOCUMENTED / f"{name}.png", optimize=True)


if __name__ == "__main__":
    publish()
