"""Paths as people type them, and the rule that every route needs a key."""

import pytest

from gateway.dialects.anthropic.consumers import MessagesConsumer, ModelConsumer, ModelsConsumer
from gateway.http.consumer import NotFound
from gateway.routes import PUBLIC_PATHS, ROUTES, find


@pytest.mark.parametrize(
    "path",
    [
        "/v1/messages",
        "//v1/messages",
        "/v1/v1/messages",
        "/messages",
        "/anthropic/v1/messages",
        "/v1/messages/",
    ],
)
def test_bug_30_messages_are_found_under_every_base_url(path: str) -> None:
    assert find(path) == (MessagesConsumer, {})


@pytest.mark.parametrize("path", ["/v1/models", "/models", "/v1/v1/models", "/v1/models/"])
def test_it_finds_the_list_of_models(path: str) -> None:
    assert find(path) == (ModelsConsumer, {})


@pytest.mark.parametrize("end", ["", "/"])
def test_it_finds_a_model_whose_id_holds_a_slash(end: str) -> None:
    found = find(f"/v1/models/zai-org/GLM-5.2{end}")
    assert found == (ModelConsumer, {"model": "zai-org/GLM-5.2"})


@pytest.mark.parametrize("path", ["/v1", "/v1/nothing", "/anthropic", "/v1/v1"])
def test_unknown_paths_of_the_api_are_answered_by_the_api(path: str) -> None:
    assert find(path) == (NotFound, {})


@pytest.mark.parametrize("path", ["/", "/admin/", "/static/x.css", "/modelsx"])
def test_other_paths_are_left_to_django(path: str) -> None:
    assert find(path) is None


def test_public_routes_are_the_listed_ones() -> None:
    assert {route.path for route in ROUTES if route.consumer.public} == PUBLIC_PATHS
