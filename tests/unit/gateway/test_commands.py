"""The operator's commands for API keys."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from gateway.keys import find_key, load_principals, mint, revoke
from gateway.models import ApiKey
from inference.models import Model
from jobs.models import KeyUse

pytestmark = pytest.mark.django_db


def run(command: str, *args: str) -> tuple[str, str]:
    stdout, stderr = StringIO(), StringIO()
    call_command(command, *args, stdout=stdout, stderr=stderr, no_color=True)
    return stdout.getvalue(), stderr.getvalue()


def test_create_api_key_prints_the_key_alone_on_stdout() -> None:
    stdout, stderr = run("create_api_key", "laptop", "--team", "blue")
    assert re.fullmatch(r"sk-tandem-[A-Za-z0-9_-]{43}\n", stdout)
    key = find_key(stdout.strip())
    assert (key.name, key.team.name) == ("laptop", "blue")
    assert "'laptop'" in stderr
    assert "sk-tandem-" not in stderr


def test_create_api_key_uses_the_default_team() -> None:
    run("create_api_key", "laptop")
    assert ApiKey.objects.get().team.name == "default"


def test_create_api_key_refuses_an_empty_name() -> None:
    with pytest.raises(CommandError, match="name: must have 1 to 200 characters"):
        run("create_api_key", "")


def test_create_api_key_says_what_the_key_may_do() -> None:
    Model.objects.create(id="Vendor/Tiny", context_tokens=1)
    run(
        *("create_api_key", "laptop", "--owner", "ann", "--expires", "2099-01-31"),
        *("--scope", "read", "--scope", "inference", "--model", "vendor/tiny"),
    )
    key = ApiKey.objects.get()
    assert (key.owner, key.scopes, key.allowed_models) == (
        "ann",
        ["inference", "read"],
        ["Vendor/Tiny"],
    )
    assert key.expires_at == datetime(2099, 1, 31, tzinfo=UTC)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--scope", "root", "invalid choice: 'root'"),
        ("--model", "unknown", "allowed_models: 'unknown' is not in the catalogue"),
        ("--expires", "2020-01-01", "expires_at: must lie in the future"),
        ("--expires", "soon", "'soon' is not a date or time"),
    ],
)
def test_create_api_key_refuses_what_would_make_no_usable_key(
    option: str, value: str, message: str
) -> None:
    with pytest.raises(CommandError, match=re.escape(message)):
        run("create_api_key", "laptop", option, value)
    assert not ApiKey.objects.exists()


def test_list_api_keys_shows_one_row_per_key_and_no_secret() -> None:
    old = mint("old phone", team="blue", owner="ann", scopes=["read"])
    revoke(ApiKey.objects.all())
    ApiKey.objects.update(expires_at=datetime(2099, 1, 31, tzinfo=UTC), allowed_models=["a", "b"])
    new = mint("laptop")
    used_at = datetime(2026, 8, 7, 12, tzinfo=UTC)
    KeyUse.objects.create(key_id=find_key("laptop").pk, last_used_at=used_at)
    stdout, _ = run("list_api_keys")
    header, first, second = (re.split("  +", line) for line in stdout.splitlines())
    assert header[:6] == ["PREFIX", "NAME", "TEAM", "OWNER", "SCOPES", "MODELS"]
    assert header[6:] == ["CREATED", "LAST USED", "EXPIRES", "REVOKED"]
    assert first[:6] == [new[:16], "laptop", "default", "-", "inference,batches,read", "all"]
    assert first[7:] == ["2026-08-07 12:00 UTC", "-", "-"]
    assert second[:6] == [old[:16], "old phone", "blue", "ann", "read", "a,b"]
    assert second[7:9] == ["-", "2099-01-31 00:00 UTC"]
    for moment in (first[6], second[6], second[9]):
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", moment)
    assert new not in stdout


def test_list_api_keys_without_keys_prints_the_header() -> None:
    assert len(run("list_api_keys")[0].splitlines()) == 1


@pytest.mark.parametrize("by", ["prefix", "id", "name"])
def test_revoke_api_key_ends_the_key_and_no_other(by: str) -> None:
    mint("laptop")
    other = mint("other")
    stdout, stderr = run("revoke_api_key", str(getattr(find_key("laptop"), by)))
    assert [principal.key_name for principal in load_principals().values()] == ["other"]
    assert find_key(other).revoked_at is None
    assert stdout == ""
    assert stderr.startswith("Revoked laptop (sk-tandem-")


def test_revoke_api_key_says_that_a_key_is_unknown() -> None:
    with pytest.raises(CommandError, match="no API key has the id, prefix or name 'nobody'"):
        run("revoke_api_key", "nobody")


def test_revoke_api_key_says_that_a_name_is_ambiguous() -> None:
    mint("laptop")
    mint("laptop")
    with pytest.raises(CommandError, match="'laptop' fits 2 API keys"):
        run("revoke_api_key", "laptop")
    assert len(load_principals()) == 2


def test_revoke_api_key_says_that_a_key_is_revoked_already() -> None:
    mint("laptop")
    run("revoke_api_key", "laptop")
    with pytest.raises(CommandError, match=r"laptop \(sk-tandem-.*…\) is revoked already"):
        run("revoke_api_key", "laptop")
