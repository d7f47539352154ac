"""The names that one request goes by."""

from __future__ import annotations

from uuid import UUID

import pytest

from gateway.request_ids import parse_id, parse_request_id

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


def test_an_id_of_one_api_is_behind_its_prefix_alone() -> None:
    assert parse_id(f"batch_{ID}", "batch_") == ID
    assert parse_id(str(ID), "") == ID
    assert parse_id(str(ID), "batch_") is None
    assert parse_id(f"file-{ID}", "batch_") is None
    assert parse_id("batch_1", "batch_") is None
