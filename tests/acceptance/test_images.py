"""Images through the official SDK: seen, fetched, replaced or refused."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import anthropic
import pytest
from anthropic.types import Message
from PIL import Image

from gateway.dialects.placeholder import OMITTED, REMINDER
from tests.acceptance.client import body
from tests.acceptance.stack import Gateway, Stack, ending, eventually

pytestmark = [pytest.mark.acceptance, pytest.mark.every_route]

QUESTION = "What is this?"


def _png() -> bytes:
    """Return an image that is too noisy to be small, so that its tokens show."""
    content = io.BytesIO()
    Image.effect_noise((64, 64), 100).save(content, "PNG")
    return content.getvalue()


PNG = _png()


def inline(data: bytes = PNG) -> dict[str, Any]:
    encoded = base64.b64encode(data).decode()
    source = {"type": "base64", "media_type": "image/png", "data": encoded}
    return {"type": "image", "source": source}


def at_url(url: str) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "url", "url": url}}


def show(model: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    """Return the SDK's arguments for a question about blocks."""
    content = [{"type": "text", "text": QUESTION}, *blocks]
    return body(model, "") | {"messages": [{"role": "user", "content": content}]}


def show_result(model: str, block: dict[str, Any]) -> dict[str, Any]:
    """Return the SDK's arguments for a question about a block that a tool returned."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [block]}
    asked = show(model, result)
    turns = [{"role": "user", "content": "Look."}, {"role": "assistant", "content": [call]}]
    return asked | {"messages": [*turns, *asked["messages"]]}


def prompt_tokens(sdk: anthropic.Anthropic, asked: dict[str, Any]) -> int:
    message: Message = sdk.messages.create(**asked)
    return message.usage.input_tokens


def refusal(sdk: anthropic.Anthropic, asked: dict[str, Any]) -> str:
    with pytest.raises(anthropic.BadRequestError) as caught:
        sdk.messages.create(**asked)
    return caught.value.message


class _Pictures(BaseHTTPRequestHandler):
    """Has a picture at every path but one."""

    def do_GET(self) -> None:
        """Answer with the picture, or with a redirect to it."""
        if self.path == "/moved.png":
            self.send_response(302)
            self.send_header("location", "/picture.png")
            self.send_header("content-length", "0")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("content-type", "image/png")
        self.send_header("content-length", str(len(PNG)))
        self.end_headers()
        self.wfile.write(PNG)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def pictures() -> Iterator[str]:
    """Return the address of a server of pictures."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Pictures) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def fetching_sdk(stack: Stack, gifted: str) -> Iterator[anthropic.Anthropic]:
    """Return a client of a gateway that may fetch from this machine."""
    gateway = stack.start_gateway(IMAGE_HOSTS_ALLOWED="127.0.0.1")
    with (
        ending(gateway.server),
        anthropic.Anthropic(base_url=gateway.url, api_key=stack.key) as sdk,
    ):
        gateway.wait_for_model(gifted)
        yield sdk


def test_an_image_in_the_request_reaches_the_model(sdk: anthropic.Anthropic, gifted: str) -> None:
    # The scripted engine counts four bytes as a token.
    added = prompt_tokens(sdk, show(gifted, inline())) - prompt_tokens(sdk, show(gifted))
    assert abs(added - len(PNG) / 4) <= 1


@pytest.mark.parametrize("path", ["picture.png", "moved.png"])
def test_an_image_at_a_url_is_the_same(
    fetching_sdk: anthropic.Anthropic, gifted: str, pictures: str, path: str
) -> None:
    fetched = prompt_tokens(fetching_sdk, show(gifted, at_url(f"{pictures}/{path}")))
    assert fetched == prompt_tokens(fetching_sdk, show(gifted, inline()))


def test_an_image_in_a_tools_result_reaches_the_model(
    sdk: anthropic.Anthropic, gifted: str
) -> None:
    assert prompt_tokens(sdk, show_result(gifted, inline())) > len(PNG) / 4


def test_images_are_counted(sdk: anthropic.Anthropic, gifted: str) -> None:
    asked = show(gifted, inline())
    counted = sdk.messages.count_tokens(model=gifted, messages=asked["messages"])
    assert counted.input_tokens == prompt_tokens(sdk, asked)


def test_nothing_is_fetched_from_this_machine_unasked(
    sdk: anthropic.Anthropic, gifted: str, pictures: str
) -> None:
    message = refusal(sdk, show(gifted, at_url(f"{pictures}/picture.png")))
    assert "messages.0.content.1.source: the host has no public address" in message


def test_what_is_no_image_is_refused(sdk: anthropic.Anthropic, gifted: str) -> None:
    assert "messages.0.content.1.source: " in refusal(sdk, show(gifted, inline(b"no image")))


def test_a_blind_model_is_told_of_the_image(sdk: anthropic.Anthropic, parrot: str) -> None:
    (text,) = sdk.messages.create(**show(parrot, inline())).content
    assert text.type == "text"
    assert text.text == QUESTION + OMITTED.text + REMINDER.text


def test_a_blind_model_is_told_of_a_results_image(sdk: anthropic.Anthropic, parrot: str) -> None:
    (text,) = sdk.messages.create(**show_result(parrot, inline())).content
    assert text.type == "text"
    assert text.text == QUESTION + REMINDER.text


def test_a_model_can_refuse_images(
    stack: Stack, gateway: Gateway, sdk: anthropic.Anthropic
) -> None:
    name = stack.add_model("refuses-images", images_without_vision="refuse")
    eventually(lambda: gateway.model_state(name), "the gateway knows the model")
    message = refusal(sdk, show(name, inline()))
    assert f"messages.0.content.1: model '{name}' has no vision" in message


def test_a_document_is_refused(sdk: anthropic.Anthropic, model: str) -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "words"}
    message = refusal(sdk, show(model, {"type": "document", "source": source}))
    assert "messages.0.content.1: Unsupported content block type: 'document'" in message
