"""The names that one request goes by."""

from __future__ import annotations

from uuid import UUID

import pytest

from gateway.request_ids import parse_request_id

ID = UUID("12345678-1234-5678-1234-567812345678")


@pytest.mark.parametrize(
    "text",
    [
        *(f"{prefix}{ID}" for prefix in ("", "msg_", "req_", "resp_", "chatcmpl-", "chatcmpl_")),
        str(ID).upper(),
        ID.hex,
        f" {ID}\n",
    ],
)
def test_an_id_is_found_in_every_name(text: str) -> None:
    assert parse_request_id(text) == ID


@pytest.mark.parametrize("text", ["", "msg_", "msg_msg_" + ID.hex, "toolu_" + ID.hex, "laptop"])
def test_other_texts_name_no_request(text: str) -> None:
    assert parse_request_id(text) is None
