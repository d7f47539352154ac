"""Paths as people type them, and the rule that every route needs a key."""

import pytest

from gateway.dialects.anthropic.consumers import MessagesConsumer, ModelConsumer, ModelsConsumer
from gateway.dialects.responses.consumers import ResponsesConsumer
from gateway.http.consumer import ApiConsumer, NotFound
from gateway.responses.consumers import (
    EventsConsumer,
    InputItemsConsumer,
    ListResponsesConsumer,
    ResponseConsumer,
)
from gateway.responses.stream_consumers import ListStreamsConsumer, MeConsumer
from gateway.routes import PUBLIC_PATHS, ROUTES, find, is_upload


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


@pytest.mark.parametrize(
    ("method", "consumer"),
    [
        ("POST", ResponsesConsumer),
        ("GET", ListResponsesConsumer),
    ],
)
def test_a_path_is_answered_by_who_takes_the_method(
    method: str, consumer: type[ApiConsumer]
) -> None:
    assert find("/v1/responses", method) == (consumer, {})


@pytest.mark.parametrize(
    ("path", "consumer", "arguments"),
    [
        ("/responses/events", EventsConsumer, {}),
        ("/v1/responses/resp_1", ResponseConsumer, {"response_id": "resp_1"}),
        ("/v1/responses/a\nb", ResponseConsumer, {"response_id": "a\nb"}),
        ("/v1/responses/resp_1/input_items", InputItemsConsumer, {"response_id": "resp_1"}),
        ("/streams", ListStreamsConsumer, {}),
        ("/auth/me", MeConsumer, {}),
    ],
)
def test_it_finds_stored_responses_and_what_is_beside_them(
    path: str, consumer: type[ApiConsumer], arguments: dict[str, str]
) -> None:
    assert find(path, "GET") == (consumer, arguments)


@pytest.mark.parametrize("path", ["/v1", "/v1/nothing", "/anthropic", "/v1/v1"])
def test_unknown_paths_of_the_api_are_answered_by_the_api(path: str) -> None:
    assert find(path) == (NotFound, {})


@pytest.mark.parametrize("path", ["/", "/admin/", "/static/x.css", "/modelsx"])
def test_other_paths_are_left_to_django(path: str) -> None:
    assert find(path) is None


def test_public_routes_are_the_listed_ones() -> None:
    assert {route.path for route in ROUTES if route.consumer.public} == PUBLIC_PATHS


def test_a_method_that_none_takes_is_refused_with_the_methods_of_all() -> None:
    found = find("/v1/files", "PUT")
    assert found is not None
    assert found[0].methods == ("POST", "GET", "HEAD")


@pytest.mark.parametrize(
    ("path", "method", "expected"),
    [
        ("/v1/files", "POST", True),
        ("/files/", "POST", True),
        ("/v1/files", "GET", False),
        ("/v1/files/file-1/content", "GET", False),
        ("/v1/messages", "POST", False),
        ("/admin/", "POST", False),
    ],
)
def test_only_bodies_of_uploads_stay_on_the_disk(path: str, method: str, expected: bool) -> None:
    assert is_upload(path, method) is expected
