"""The ways to a model: straight to its engine, or through an upstream of either dialect.

Tests that are marked `every_route` run once for each way. The upstream is the same Tandem by its
own address and with another key: nothing but HTTP is between the two. What a way cannot carry is
named here, and docs/upstreams.md has the same table.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import pytest

from tests.acceptance.stack import Gateway, Server, Stack, insert_upstream

DIRECT = "direct"
UPSTREAMS = {"anthropic": "", "openai": "/v1"}
"""The path of each dialect's API, as an upstream's address has it."""
ROUTES = (DIRECT, *UPSTREAMS)

_OPTIONS: dict[str, Any] = {
    # Tandem takes more in Chat than OpenAI, as vLLM does.
    "openai": {"accepts": ["chat_template_kwargs", "top_k"]},
    # A small model's context has no room for more.
    "anthropic": {"default_max_tokens": 512},
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
        "An answer has the upstream's `id` and tier; a request is found by its `request-id` header",
        ("test_compatibility.py::test_a_messages_id_is_that_of_its_request",),
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
        "Messages",
        "A key that comes twice is refused: the upstream could go by the other value",
        ("test_minefield.py::test_a_repeated_key_counts_once",),
    ),
    Gap(
        "anthropic",
        "Chat, Messages, Responses",
        "Its cache is the operator's account's: all teams share it",
        ("test_prompt_caching.py::test_another_team_finds_nothing_of_it",),
    ),
    Gap(
        "anthropic",
        "Chat, Responses",
        "Log probabilities: that API has none, and they are refused",
        (
            "test_chat.py::test_log_probabilities_are_told",
            "test_chat.py::test_a_real_model_tells_log_probabilities",
            "test_responses.py::test_log_probabilities_are_told_where_included",
            "test_responses.py::test_a_real_engine_tells_log_probabilities",
        ),
    ),
    Gap(
        "anthropic",
        "Chat",
        "Each of several answers (`n`) counts the prompt, since each is asked for with it",
        (
            "test_chat.py::test_several_answers_count_the_prompt_once",
            "test_chat.py::test_a_real_model_counts_the_prompt_of_several_answers_once",
        ),
    ),
    Gap(
        "openai",
        "Messages, Responses",
        "Tokens cannot be counted before the call: that API has no way to ask",
        (
            "test_count_tokens.py::test_what_the_cache_had_is_no_input_again",
            "test_count_tokens.py::test_a_call_reports_what_was_counted",
            "test_count_tokens.py::test_whatever_the_model_is_told_is_counted",
            "test_images.py::test_images_are_counted",
            "test_responses.py::test_what_goes_on_from_a_response_is_counted_with_it",
            "test_typescript.py::test_an_image_is_counted",
        ),
    ),
    Gap(
        "openai",
        "Messages",
        "Cache breakpoints have no effect: that API has none, nor tells what was written",
        (
            "test_count_tokens.py::test_a_marked_system_prompt_is_read_from_the_cache",
            "test_prompt_caching.py::test_most_of_a_repeated_long_prompt_is_read_from_the_cache",
            "test_prompt_caching.py::test_a_prewarmed_prompt_is_in_the_cache_when_it_is_asked",
        ),
    ),
    Gap(
        "openai",
        "Chat, Messages, Responses",
        "Its cache is the operator's account's: all teams share it, unless it takes `cache_salt`",
        ("test_prompt_caching.py::test_another_team_finds_nothing_of_it",),
    ),
    Gap(
        "openai",
        "Chat",
        "Each of several answers (`n`) counts the prompt, since each is asked for with it",
        (
            "test_chat.py::test_several_answers_count_the_prompt_once",
            "test_chat.py::test_a_real_model_counts_the_prompt_of_several_answers_once",
        ),
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


def reached(request: pytest.FixtureRequest, model: str, route: str, far: str) -> str:
    """Return what a way calls a model that has an engine.

    `far` is the fixture of the models that lead there, which only who takes a way needs.
    """
    if route == DIRECT:
        return model
    names: dict[tuple[str, str], str] = request.getfixturevalue(far)
    return names[route, model]


def start_worker(stack: Stack, gateway: Gateway, models: Collection[str]) -> Server:
    """Start one worker of all these models, and wait until the gateway sees them."""
    worker = stack.start_worker(*models)
    for model in models:
        gateway.wait_for_model(model)
    return worker
