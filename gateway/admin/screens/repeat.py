"""A command that sends a request again, for a shell. Pure."""

from __future__ import annotations

import codecs

from gateway.batches.endpoints import CHAT, MESSAGES, RESPONSES

PATHS = {"anthropic": MESSAGES, "chat": CHAT, "responses": RESPONSES}
"""Where each dialect's requests go."""

# Longer ones are nothing to copy: the command then reads them from the file that the page offers.
_INLINE_BYTES = 16 * 1024
_END = "JSON"


def curl(base_url: str, dialect: str, body: bytes, file_name: str) -> str | None:
    """Return the command; it takes the key from $TANDEM_API_KEY. None for an unknown dialect.

    The body is sent byte for byte as it came, but for a mark of its byte order.
    """
    path = PATHS.get(dialect)
    if path is None:
        return None
    lines = [
        f"curl -N {base_url}{path} \\",
        '  -H "x-api-key: $TANDEM_API_KEY" \\',
        '  -H "content-type: application/json" \\',
    ]
    text = _text(body)
    if text is None:
        return "\n".join([*lines, f"  --data-binary @{file_name}"])
    return "\n".join([*lines, f"  --data-binary @- <<'{_END}'", text, _END])


def _text(body: bytes) -> str | None:
    """Return a body that can stand in the command; None for one that cannot."""
    if len(body) > _INLINE_BYTES:
        return None
    try:
        text = body.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError:
        return None
    return None if _END in text.splitlines() else text
