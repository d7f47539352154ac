"""JSON that is typed into the admin's forms."""

from __future__ import annotations

import pytest
from django.test import Client

from inference.models import Model
from tests.unit.gateway.admin.forms import MODELS, model_form

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "typed",
    [
        '{"a": "\\u0000"}',
        '{"\\u0000": 1}',
        '{"a": ["\\ud800"]}',
        '{"a": NaN}',
        '{"a": 1e999}',
        "[" * 100_000,
        '{"a":' * 100_000 + "1" + "}" * 100_000,
    ],
    ids=["null", "null key", "half a pair", "no number", "too large", "deep", "deep and whole"],
)
def test_what_the_database_cannot_hold_is_refused(admin_client: Client, typed: str) -> None:
    answer = admin_client.post(f"{MODELS}add/", model_form(engine_options=typed))
    assert answer.status_code == 200
    assert "errorlist" in answer.content.decode()
    assert not Model.objects.exists()


def test_all_else_is_kept_as_it_is(admin_client: Client) -> None:
    typed = '{"text": "caf\\u00e9 \\\\u0000 \\ud83d\\ude80"}'
    assert admin_client.post(f"{MODELS}add/", model_form(engine_options=typed)).status_code == 302
    assert Model.objects.get().engine_options == {"text": "café \\u0000 \N{ROCKET}"}
