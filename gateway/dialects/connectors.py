"""What the dialects share about MCP servers that requests bring along."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

MAX_SERVERS = 20
"""Each is connected to before the answer begins."""


def _a_web_address(url: str) -> str:
    if not url.startswith(("https://", "http://")):
        raise ValueError("Input should be an http or https URL")
    return url


MAX_TOKEN_CHARS = 8192
"""What web servers take of a header."""

ServerName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
ServerToken = Annotated[
    str,
    Field(pattern=r"^([\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?)?$", max_length=MAX_TOKEN_CHARS),
]
"""What a header can carry."""
ServerUrl = Annotated[str, Field(max_length=2048), AfterValidator(_a_web_address)]
