"""The ways to a model: straight to its engine, or through an upstream of either dialect.

Tests that are marked `every_route` run once for each way. The upstream is the same Tandem by its
own address and with another key: nothing but HTTP is between the two. What a way cannot carry is
named here, and docs/upstreams.md has the same table.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from tests.acceptance.stack import Gateway, Server, Stack, insert_upstream

DIRECT = "direct"
UPSTREAMS = {"anthropic": "", "openai": "/v1"}
"""The path of each dialect's API, as an upstream's address has it."""
ROUTES = (DIRECT, *UPSTREAMS)

# Tandem takes more in Chat than OpenAI, as vLLM does.
_OPTIONS: dict[str, Any] = {
    "openai": {"accepts": ["chat_template_kwargs", "top_k"]},
    "anthropic": {},
}


class Origin(NamedTuple):
    """Another Tandem, as this one reaches it. `name` begins those of its models here."""

    name: str
    url: str
    key: str


class Gap(NamedTuple):
    """What cannot be through an upstream, and the tests that are skipped for it.

    `apis` are those that callers speak.
    """

    route: str
    apis: str
    what: str
    tests: tuple[str, ...]


GAPS = (
    Gap(
        "anthropic",
        "Messages",
        "The upstream fetches images at URLs, by its own rules",
        ("test_images.py::test_an_image_at_a_url_is_the_same",),
    ),
    Gap(
        "anthropic",
        "Messages",
        "An answer has the upstream's `id`; here a request is found by its `request-id` header",
        (
            "test_accounting.py::test_a_finished_request_is_billed_once_and_in_the_trail",
            "test_compatibility.py::test_a_messages_id_is_that_of_its_request",
        ),
    ),
    Gap(
        "anthropic",
        "Messages",
        "Fields that are unknown here travel on: the upstream ignores or refuses them",
        (
            "test_compatibility.py::"
            "test_what_is_ignored_is_listed_and_what_only_tunes_serving_is_not",
        ),
    ),
    Gap(
        "anthropic",
        "Chat, Responses",
        "Log probabilities: that API has none, and they are refused",
        (
            "test_chat.py::test_log_probabilities_are_told",
            "test_responses.py::test_log_probabilities_are_told_where_included",
        ),
    ),
    Gap(
        "anthropic",
        "Chat, Responses",
        "An upstream that fails is unavailable: 503 in place of its 500",
        ("test_responses.py::test_an_engine_that_fails_is_said_as_the_sdk_reads_it",),
    ),
    Gap(
        "anthropic",
        "Chat",
        "Each of several answers (`n`) counts the prompt, since each is asked for with it",
        ("test_chat.py::test_several_answers_count_the_prompt_once",),
    ),
    Gap(
        "openai",
        "Messages, Responses",
        "Tokens cannot be counted before the call: that API has no way to ask",
        (
            "test_count_tokens.py::test_what_the_cache_had_is_no_input_again",
            "test_images.py::test_images_are_counted",
            "test_responses.py::test_what_goes_on_from_a_response_is_counted_with_it",
        ),
    ),
    Gap(
        "openai",
        "Chat",
        "Each of several answers (`n`) counts the prompt, since each is asked for with it",
        ("test_chat.py::test_several_answers_count_the_prompt_once",),
    ),
    Gap(
        "openai",
        "Chat, Messages, Responses",
        "An upstream that fails is unavailable: 503 in place of its 500",
        ("test_responses.py::test_an_engine_that_fails_is_said_as_the_sdk_reads_it",),
    ),
)


def gap(route: str, test: str) -> Gap | None:
    """Return why a test cannot take a way, or None if it can. `test` is `file.py::function`."""
    found = (each for each in GAPS if each.route == route and test in each.tests)
    return next(found, None)


def add_far_models(
    stack: Stack, origin: Origin, models: dict[str, dict[str, Any]]
) -> dict[tuple[str, str], str]:
    """Put models into the catalogue that lead to these of another Tandem, by each of its APIs.

    `models` has the fields of each. Return their names here by dialect and model.
    """
    key_file = stack.layout.data_dir / f"key-of-{origin.name}"
    key_file.write_text(origin.key)
    names = {}
    for dialect, path in UPSTREAMS.items():
        upstream = f"{origin.name}-{dialect}"
        insert_upstream(
            stack.layout.database_url,
            upstream,
            base_url=f"{origin.url}{path}",
            key=f"${{file:{key_file}}}",
            retries=0,
        )
        for model, fields in models.items():
            names[dialect, model] = stack.add_model(
                f"{upstream}/{model}",
                backend=dialect,
                upstream_id=upstream,
                upstream_model=model,
                upstream_options=_OPTIONS[dialect],
                **fields,
            )
    return names


def start_worker(stack: Stack, gateway: Gateway, models: Collection[str]) -> Server:
    """Start one worker of all these models, and wait until the gateway sees them."""
    worker = stack.start_worker(*models)
    for model in models:
        gateway.wait_for_model(model)
    return worker
