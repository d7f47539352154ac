"""How people look at the admin: on which screen, by day or by night."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Scheme = Literal["light", "dark"]


@dataclass(frozen=True)
class Screen:
    """A screen's size in CSS pixels."""

    name: str
    width: int
    height: int


LAPTOP = Screen("laptop", 1280, 800)
PHONE = Screen("phone", 390, 844)
SCREENS = (LAPTOP, PHONE)
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
