"""API keys: made, found, revoked."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries, DjangoCaptureOnCommitCallbacks

from gateway import keys, nudges
from gateway.models import ApiKey, Team
from inference.errors import ErrorCode, TandemError
from inference.models import Model
from inference.transport.nudge import Topic

pytestmark = pytest.mark.django_db

SOME_ID = "01890a5d-ac96-774b-bcce-b302099a8057"


def revoke_named(name: str) -> int:
    return keys.revoke(ApiKey.objects.filter(name=name))


def test_a_key_has_the_project_s_form_and_256_random_bits() -> None:
    assert re.fullmatch(r"sk-tandem-[A-Za-z0-9_-]{43}", keys.mint("laptop"))
    assert keys.mint("laptop") != keys.mint("laptop")


@pytest.mark.parametrize(
    "change",
    [lambda key: key[:-1], lambda key: key + "a", str.upper],
    ids=["short", "long", "loud"],
)
def test_what_has_the_form_of_a_key_is_known(change: Callable[[str], str]) -> None:
    plaintext = keys.mint("laptop")
    assert keys.is_key(plaintext)
    assert not keys.is_key(change(plaintext))


def test_only_the_hash_and_the_prefix_are_stored() -> None:
    plaintext = keys.mint("laptop")
    (row,) = ApiKey.objects.values()
    assert bytes(row["digest"]) == keys.digest(plaintext)
    assert plaintext.startswith(row["prefix"])
    assert len(plaintext) - len(row["prefix"]) > 32
    assert plaintext not in str(row)


def test_a_team_is_made_once() -> None:
    keys.mint("a", team="blue")
    keys.mint("b", team="blue")
    keys.mint("c")
    assert list(Team.objects.values_list("name", flat=True)) == ["blue", "default"]


@pytest.mark.parametrize("name", ["", "   ", "x" * 201])
def test_it_refuses_names_that_are_empty_or_too_long(name: str) -> None:
    with pytest.raises(TandemError, match="name: must have 1 to 200 characters"):
        keys.mint(name)
    with pytest.raises(TandemError, match="team: must have 1 to 200 characters"):
        keys.mint("laptop", team=name)
    assert not ApiKey.objects.exists()


def test_a_key_has_every_scope_but_admin_and_every_model_unless_it_is_said() -> None:
    keys.mint("laptop")
    key = ApiKey.objects.get()
    assert key.scopes == ["inference", "batches", "read"]
    assert (key.allowed_models, key.expires_at, key.owner) == ([], None, "")


def test_models_are_stored_as_the_catalogue_spells_them_and_scopes_once() -> None:
    for model in ("Vendor/Tiny", "alpha"):
        Model.objects.create(id=model, context_tokens=1)
    keys.mint(
        "laptop",
        scopes=["read", "inference", "read"],
        allowed_models=["VENDOR/TINY", "alpha", "vendor/tiny"],
        owner=" ann ",
    )
    key = ApiKey.objects.get()
    assert key.scopes == ["inference", "read"]
    assert key.allowed_models == ["Vendor/Tiny", "alpha"]
    assert key.owner == "ann"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"scopes": ["root"]}, "scopes: 'root' is none of inference, batches, read, admin"),
        ({"scopes": []}, "scopes: a key needs at least one"),
        ({"allowed_models": ["unknown"]}, "allowed_models: 'unknown' is not in the catalogue"),
        ({"expires_at": timezone.now()}, "expires_at: must lie in the future"),
        ({"owner": "x" * 201}, "owner: must have at most 200 characters"),
    ],
)
def test_a_key_that_would_not_work_is_refused_and_makes_no_team(
    wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(TandemError, match=message) as caught:
        keys.mint("laptop", **wrong)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert not ApiKey.objects.exists()
    assert not Team.objects.exists()


def test_a_live_key_is_found_by_its_text_in_one_query(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    plaintext = keys.mint("laptop", team="blue")
    with django_assert_num_queries(1):
        key = keys.find_live_key(plaintext)
        assert (key.name, key.team.name) == ("laptop", "blue")


def test_an_unknown_a_revoked_and_an_expired_key_are_not_live() -> None:
    plaintext = keys.mint("laptop")
    for text in ("", plaintext[:-1], plaintext[:16], "ключ"):
        with pytest.raises(TandemError, match="invalid x-api-key"):
            keys.find_live_key(text)
    ApiKey.objects.update(expires_at=timezone.now())
    with pytest.raises(TandemError, match="has expired") as caught:
        keys.find_live_key(plaintext)
    assert caught.value.code is ErrorCode.AUTHENTICATION
    revoke_named("laptop")
    with pytest.raises(TandemError, match="invalid x-api-key"):
        keys.find_live_key(plaintext)


def test_live_keys_are_loaded_by_digest() -> None:
    plaintext = keys.mint("laptop", team="blue")
    keys.mint("old")
    revoke_named("old")
    key = ApiKey.objects.get(name="laptop")
    assert keys.load_principals() == {
        keys.digest(plaintext): keys.Principal(
            key_id=str(key.id),
            key_name="laptop",
            team_id=key.team_id,
            team_name="blue",
            scopes=frozenset({"inference", "batches", "read"}),
        )
    }


def test_a_key_is_found_by_prefix_id_name_or_its_whole_text() -> None:
    plaintext = keys.mint("laptop")
    keys.mint("other")
    key = ApiKey.objects.get(name="laptop")
    for reference in (key.prefix, str(key.id), "laptop", plaintext):
        assert keys.find_key(reference) == key


@pytest.mark.parametrize("reference", ["nobody", "sk-tandem-", SOME_ID, ""])
def test_it_says_when_no_key_is_meant(reference: str) -> None:
    keys.mint("laptop")
    with pytest.raises(TandemError, match="no API key has the id") as caught:
        keys.find_key(reference)
    assert caught.value.code is ErrorCode.NOT_FOUND


def test_it_lists_the_candidates_when_several_keys_are_meant() -> None:
    keys.mint("laptop")
    keys.mint("laptop")
    with pytest.raises(TandemError, match="fits 2 API keys") as caught:
        keys.find_key("laptop")
    assert all(str(key.id) in caught.value.message for key in ApiKey.objects.all())


def test_a_live_key_is_preferred_to_revoked_ones_of_the_same_name() -> None:
    keys.mint("laptop")
    revoke_named("laptop")
    live = keys.mint("laptop")
    assert keys.find_key("laptop") == keys.find_key(live)


def test_revoking_counts_only_keys_that_were_alive() -> None:
    keys.mint("laptop")
    assert revoke_named("laptop") == 1
    moment = ApiKey.objects.get().revoked_at
    assert revoke_named("laptop") == 0
    assert ApiKey.objects.get().revoked_at == moment


def test_gateways_are_told_after_the_commit_and_not_before(
    monkeypatch: pytest.MonkeyPatch,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    nudge = Mock()
    monkeypatch.setattr(nudges, "nudge", nudge)
    for change in (lambda: keys.mint("laptop"), lambda: revoke_named("laptop")):
        nudge.reset_mock()
        with django_capture_on_commit_callbacks(execute=True):
            change()
            nudge.assert_not_called()
        nudge.assert_called_once()
        assert nudge.call_args.args[-1] is Topic.KEYS


def test_a_key_that_lands_in_a_text_is_not_read_there() -> None:
    plaintext = keys.KEY_START + "a-B_9" * 8
    assert keys.without_keys(f"model '{plaintext}' not found") == "model 'sk-tandem-…' not found"
