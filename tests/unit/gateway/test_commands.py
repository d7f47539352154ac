"""The operator's commands for API keys."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from gateway.keys import find_key, load_principals, mint, revoke
from gateway.models import ApiKey

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


def test_list_api_keys_shows_one_row_per_key_and_no_secret() -> None:
    old = mint("old phone", team="blue")
    revoke(ApiKey.objects.all())
    new = mint("laptop")
    stdout, _ = run("list_api_keys")
    header, first, second = stdout.splitlines()
    assert header.split() == ["PREFIX", "NAME", "TEAM", "CREATED", "REVOKED"]
    moment = r"\d{4}-\d\d-\d\d \d\d:\d\d UTC"
    assert re.fullmatch(rf"{new[:16]} +laptop +default +{moment} +-", first)
    assert re.fullmatch(rf"{old[:16]} +old phone +blue +{moment} +{moment}", second)
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
