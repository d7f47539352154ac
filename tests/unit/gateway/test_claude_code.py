"""What Claude Code's environment must say, and what is asked of a gateway before it starts."""

from __future__ import annotations

import subprocess
from typing import Any

import httpx
import pytest

from gateway.claude_code import (
    DISCOVERY,
    ClaudeCodeError,
    Gateway,
    ServedModel,
    apply,
    base_url,
    changes,
    shell_lines,
    warnings,
)

URL = "http://tandem.example:8080"
ROW = {
    "id": "org/Model",
    "context_tokens": 100_000,
    "capabilities": {"tools": {"supported": True}, "batch": {"supported": False}},
}


def served(context_tokens: int = 100_000, *, tools: bool = True) -> ServedModel:
    capabilities = {"tools": {"supported": tools}}
    row = ROW | {"context_tokens": context_tokens, "capabilities": capabilities}
    return Gateway(URL, "k", transport(httpx.Response(200, json=row))).find("org/Model")


def transport(
    row: httpx.Response, counted: httpx.Response | None = None, listed: Any = None
) -> httpx.MockTransport:
    """Return a gateway that gives these answers, and checks what it is asked."""

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.headers["authorization"] == "Bearer k"
        path = request.url.raw_path.decode()
        if path == "/v1/models":
            return httpx.Response(200, json=listed)
        if path == "/v1/messages/count_tokens":
            return counted or httpx.Response(200, json={"input_tokens": 1})
        assert path == "/v1/models/org%2FModel"
        return row

    return httpx.MockTransport(answer)


def failure(status: int, message: str) -> httpx.Response:
    return httpx.Response(status, json={"type": "error", "error": {"message": message}})


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/", "//"])
def test_an_address_loses_the_version_and_slashes_at_its_end(end: str) -> None:
    assert base_url(f" {URL}{end}") == URL


@pytest.mark.parametrize(
    "text", ["", "localhost:8080", "tandem", "ftp://tandem", "http://", "http://tandem:port"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ClaudeCodeError, match="is no address"):
        base_url(text)


def test_a_model_is_found_with_its_limits() -> None:
    model = served(50_000, tools=False)
    assert (model.id, model.context_tokens) == ("org/Model", 50_000)
    assert not model.capabilities.tools.supported


def test_an_unknown_model_is_refused_with_those_that_are_there() -> None:
    missing = failure(404, "model 'org/Model' not found")
    gateway = Gateway(URL, "k", transport(missing, listed={"data": [{"id": "a"}, {"id": "b"}]}))
    with pytest.raises(ClaudeCodeError, match=r"'org/Model' not found at http.*, which has: a, b$"):
        gateway.find("org/Model")


def test_a_model_without_an_engine_is_refused_with_the_reason() -> None:
    idle = failure(503, "model 'org/Model' cannot be served right now: its engine is still loading")
    gateway = Gateway(URL, "k", transport(httpx.Response(200, json=ROW), idle))
    with pytest.raises(ClaudeCodeError, match="its engine is still loading"):
        gateway.find("org/Model")


@pytest.mark.parametrize("status", [400, 529])
def test_a_model_that_cannot_count_now_may_be_served_all_the_same(status: int) -> None:
    other = failure(status, "not now")
    gateway = Gateway(URL, "k", transport(httpx.Response(200, json=ROW), other))
    assert gateway.find("org/Model").id == "org/Model"


def test_a_refused_key_is_told_apart() -> None:
    gateway = Gateway(URL, "k", transport(failure(401, "invalid x-api-key")))
    with pytest.raises(ClaudeCodeError, match=r"refuses the API key \(invalid x-api-key\)"):
        gateway.find("org/Model")


def test_a_key_that_cannot_be_sent_is_refused() -> None:
    with pytest.raises(ClaudeCodeError, match="is it whole"):
        Gateway(URL, "sk-tandem-abc…")


def test_a_gateway_that_does_not_answer_is_told_apart() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("Connection refused")

    gateway = Gateway(URL, "k", httpx.MockTransport(refuse))
    with pytest.raises(ClaudeCodeError, match=rf"cannot reach Tandem at {URL} \(Connection"):
        gateway.find("org/Model")


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, text="<html>"),
        httpx.Response(200, json={"id": "org/Model"}),
        httpx.Response(302, headers={"location": "/login"}),
        httpx.Response(401, text="Unauthorized"),
        httpx.Response(404, text="Not Found"),
    ],
)
def test_what_is_not_tandem_is_told_apart(answer: httpx.Response) -> None:
    gateway = Gateway(URL, "k", transport(answer))
    with pytest.raises(ClaudeCodeError, match=f"status {answer.status_code} and not as Tandem"):
        gateway.find("org/Model")


def test_every_role_is_played_by_the_model() -> None:
    needed = changes(served(), URL, "k", {})
    assert needed["ANTHROPIC_BASE_URL"] == URL
    assert needed["ANTHROPIC_AUTH_TOKEN"] == "k"
    models = {value for name, value in needed.items() if name.endswith("_MODEL")}
    assert models == {"org/Model"}


@pytest.mark.parametrize(
    ("context_tokens", "output_tokens"), [(8192, "2048"), (128_000, "32000"), (200_000, "32000")]
)
def test_the_limits_are_the_models(context_tokens: int, output_tokens: str) -> None:
    needed = changes(served(context_tokens), URL, "k", {})
    assert needed["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == str(context_tokens)
    assert needed["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == output_tokens


def test_an_output_limit_of_the_users_own_stays() -> None:
    own = {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": "1000", "CLAUDE_CODE_MAX_CONTEXT_TOKENS": "1"}
    environment = apply(changes(served(), URL, "k", own), own)
    assert environment["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "1000"
    assert environment["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "100000"


def test_other_services_are_taken_out_of_the_environment_and_the_rest_is_left() -> None:
    inherited = {"ANTHROPIC_API_KEY": "sk-ant", "CLAUDE_CODE_USE_BEDROCK": "1", "PATH": "/bin"}
    environment = apply(changes(served(), URL, "k", inherited), inherited)
    assert "ANTHROPIC_API_KEY" not in environment
    assert "CLAUDE_CODE_USE_BEDROCK" not in environment
    assert environment["PATH"] == "/bin"


def test_nothing_goes_elsewhere_also_where_models_are_discovered() -> None:
    quiet = apply(changes(served(), URL, "k", {}), {})
    assert quiet["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"] == "1"
    inherited = {DISCOVERY: "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    discovering = apply(changes(served(), URL, "k", inherited), inherited)
    # It would switch discovery off too.
    assert "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC" not in discovering
    assert discovering["DISABLE_TELEMETRY"] == discovering["DISABLE_ERROR_REPORTING"] == "1"


def test_a_shell_reads_the_lines_as_they_are_meant() -> None:
    needed = changes(served(), URL, "it's $HOME", {})
    inherited = {"ANTHROPIC_API_KEY": "sk-ant", "PATH": "/usr/bin:/bin"}
    run = subprocess.run(
        ["sh", "-euc", f"{shell_lines(needed)}\nenv -0"],
        env=inherited,
        check=True,
        capture_output=True,
        text=True,
    )
    told = dict(line.split("=", 1) for line in run.stdout.split("\0") if line)
    assert told.items() >= apply(needed, inherited).items()
    assert "ANTHROPIC_API_KEY" not in told


def test_a_large_model_that_calls_tools_needs_no_warning() -> None:
    assert warnings(served(65_536)) == []


def test_a_short_context_is_warned_of() -> None:
    (warning,) = warnings(served(65_535))
    assert warning.startswith("org/Model has a context of 65535 tokens")


def test_a_model_without_tools_is_warned_of() -> None:
    assert warnings(served(tools=False)) == [
        "org/Model cannot call tools: Claude Code will only talk"
    ]
