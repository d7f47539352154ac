"""Every kind of error raises its own class in both of Anthropic's SDKs, with all that it says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import pytest

from tests.acceptance.client import ENDLESS, Client, RawRequest, body, script
from tests.acceptance.programs import Program
from tests.acceptance.stack import Gateway, Stack, ending
from tests.acceptance.teams import make_member, set_price
from tests.acceptance.test_tools import answer

pytestmark = [pytest.mark.acceptance, pytest.mark.every_route]

Error = dict[str, Any]
Fail = Callable[..., Error]
"""Sends a request to the gateway at a URL by a scenario, and returns the error that it raises."""

scenarios = pytest.mark.parametrize("scenario", ["create", "stream"])


@pytest.fixture(params=["python", "typescript"])
def fail(request: pytest.FixtureRequest, stack: Stack) -> Fail:
    """Return one of the SDKs as a way to fail."""
    if request.param == "python":
        return lambda url, scenario, asked, key=stack.key: _fail_in_python(
            url, scenario, asked, key
        )
    program: Program = request.getfixturevalue("typescript")
    return lambda url, scenario, asked, key=stack.key: program.at(url).fail(
        scenario, asked, key=key
    )


def _fail_in_python(url: str, scenario: str, asked: dict[str, Any], key: str) -> Error:
    with (
        anthropic.Anthropic(base_url=url, api_key=key, max_retries=0) as sdk,
        pytest.raises(anthropic.APIStatusError) as caught,
    ):
        answer(sdk, asked, streamed=scenario == "stream")
    error = caught.value
    return {
        "name": type(error).__name__,
        "status": error.status_code,
        "type": error.type,
        "message": error.message,
        "requestID": error.request_id,
    }


def check(error: Error, name: str, status: int, kind: str, message: str) -> None:
    """Check an error's class, and that the SDK found all that Tandem says in it."""
    assert (error["name"], error["status"], error["type"]) == (name, status, kind)
    assert message in error["message"]
    assert error["requestID"].startswith("req_")


@scenarios
def test_a_refusal_has_the_class_of_its_status(
    stack: Stack, gateway: Gateway, model: str, fail: Fail, scenario: str
) -> None:
    good = body(model, "go")
    check(
        fail(gateway.url, scenario, good | {"max_tokens": -1}),
        *("BadRequestError", 400, "invalid_request_error", "max_tokens: "),
    )
    check(
        fail(gateway.url, scenario, good, key="sk-tandem-wrong"),
        *("AuthenticationError", 401, "authentication_error", "key"),
    )
    check(
        fail(gateway.url, scenario, good | {"model": "gpt-0"}),
        *("NotFoundError", 404, "not_found_error", "model 'gpt-0' not found"),
    )


@scenarios
def test_what_a_key_may_not_do_has_the_class_of_its_status(
    stack: Stack, gateway: Gateway, engine_model: str, fail: Fail, scenario: str
) -> None:
    asked = body(engine_model, "go")
    reader = make_member(stack, key={"scopes": ["read"]})
    check(
        fail(gateway.url, scenario, asked, key=reader.key),
        *("PermissionDeniedError", 403, "permission_error", "'inference'"),
    )
    nobody = make_member(stack, requests_per_minute=0)
    check(
        fail(gateway.url, scenario, asked, key=nobody.key),
        *("RateLimitError", 429, "rate_limit_error", "0 requests per minute"),
    )


@scenarios
def test_what_money_refuses_has_the_class_of_its_status(
    stack: Stack, gateway: Gateway, fail: Fail, request: pytest.FixtureRequest, scenario: str
) -> None:
    priced = stack.add_model(f"priced-{request.node.callspec.id}")
    set_price(stack, priced)
    gateway.wait_for_model(priced, state="missing", engines=0)
    asked = body(priced, "go")
    broke = make_member(stack, prepaid=True)
    check(
        fail(gateway.url, scenario, asked, key=broke.key),
        *("PaymentRequiredError", 402, "billing_error", "the team's balance is used up"),
    )
    capped = make_member(stack, daily_spend_cap_micros=0)
    check(
        fail(gateway.url, scenario, asked, key=capped.key),
        *("RateLimitError", 429, "billing_error", "spend limit reached (daily; resets "),
    )


@scenarios
def test_a_model_without_an_engine_is_unavailable(
    stack: Stack, gateway: Gateway, fail: Fail, request: pytest.FixtureRequest, scenario: str
) -> None:
    lonely = stack.add_model(f"lonely-{request.node.callspec.id}")
    gateway.wait_for_model(lonely, state="missing", engines=0)
    error = fail(gateway.url, scenario, body(lonely, "go"))
    check(error, "ServiceUnavailableError", 503, "api_error", lonely)


@pytest.fixture(scope="module")
def strict(stack: Stack, model: str) -> Iterator[Gateway]:
    """Return a gateway that takes small bodies and waits a second."""
    gateway = stack.start_gateway(MAX_BODY_BYTES="2000", REQUEST_TIMEOUT_S="1")
    with ending(gateway.server):
        gateway.wait_for_model(model)
        yield gateway


@scenarios
def test_a_body_that_is_too_large_has_a_class(
    strict: Gateway, model: str, fail: Fail, scenario: str
) -> None:
    error = fail(strict.url, scenario, body(model, "x" * 2000))
    check(error, "ContentTooLargeError", 413, "request_too_large", "maximum of 2000")


@scenarios
def test_an_answer_that_takes_too_long_has_a_class(
    strict: Gateway, model: str, fail: Fail, scenario: str
) -> None:
    # It has not begun by then: a stream that has begun ends with an event.
    error = fail(strict.url, scenario, body(model, script(start_delay_s=600)))
    check(error, "GatewayTimeoutError", 504, "timeout_error", "")


@scenarios
def test_a_full_queue_is_an_overload(
    stack: Stack,
    gateway: Gateway,
    client: Client,
    fail: Fail,
    request: pytest.FixtureRequest,
    scenario: str,
) -> None:
    name = stack.add_model(f"full-{request.node.callspec.id}", capacity=1, max_waiting=1)
    asked = body(name, "go")
    with ending(stack.start_worker(name)):
        gateway.wait_for_model(name)
        with client.stream(name, ENDLESS) as running:
            running.wait_for("content_block_delta")
            with RawRequest(gateway.port, stack.key, asked):
                stack.wait_for_waiting(name, 1)
                error = fail(gateway.url, scenario, asked)
    check(error, "OverloadedError", 529, "overloaded_error", name)


def test_an_engines_failure_is_an_internal_error(
    gateway: Gateway, model: str, route: str, fail: Fail
) -> None:
    error = fail(gateway.url, "create", body(model, script(fail_at=1)))
    # Where its words are translated, an upstream that fails is one that is away.
    translated = route == "openai"
    name, status = ("ServiceUnavailableError", 503) if translated else ("InternalServerError", 500)
    check(error, name, status, "api_error", "the script says to fail")


def test_a_failure_after_the_first_byte_has_its_type(
    gateway: Gateway, model: str, fail: Fail
) -> None:
    error = fail(gateway.url, "stream", body(model, script(fail_at=1)))
    # The status is past: both SDKs have only their class for any error.
    assert error["name"] in ("APIStatusError", "APIError")
    assert error["type"] == "api_error"
    assert "the script says to fail" in error["message"]
