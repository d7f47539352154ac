"""MCP servers that requests bring along: in every lane, by the official SDKs, and refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from tests.acceptance.stack import Gateway, Stack, ending
from tests.acceptance.test_background import ended
from tests.acceptance.test_message_batches import request, results, wait_for_end
from tests.acceptance.test_openai_batches import lines, submit, wait
from tests.acceptance.test_server_tools import call, once
from tests.openai_types import check_event, check_response

pytestmark = pytest.mark.acceptance

SECRET = "sk-brought-77ab19"
SAID = once(call("read_header", name="Authorization"))
RESPONSES: Any = "/v1/responses"


@pytest.fixture(scope="module")
def open_gateway(stack: Stack) -> Iterator[Gateway]:
    """Return a gateway that lets requests bring servers along, beside a clerk that does."""
    allowed = {"MCP_SERVERS_IN_REQUESTS": "true"}
    started = stack.start_gateway(**allowed)
    with ending(started.server), ending(stack.start_clerk(**allowed)):
        yield started


@pytest.fixture(scope="module")
def bare(stack: Stack, open_gateway: Gateway) -> Iterator[str]:
    """Return a model that has no servers of its own."""
    name = stack.add_model("has-no-servers")
    with ending(stack.start_worker(name, MCP_HOSTS_ALLOWED="127.0.0.1")):
        open_gateway.wait_for_model(name)
        yield name


@pytest.fixture
def sdk(stack: Stack, open_gateway: Gateway) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=open_gateway.url, api_key=stack.key) as client:
        yield client


@pytest.fixture
def api(stack: Stack, open_gateway: Gateway) -> Iterator[openai.OpenAI]:
    url = f"{open_gateway.url}/v1"
    with openai.OpenAI(base_url=url, api_key=stack.key, max_retries=0) as client:
        yield client


def connector(url: str) -> dict[str, Any]:
    """Return the server as Anthropic's connector has it."""
    return {"type": "url", "name": "web", "url": url, "authorization_token": SECRET}


def tool(url: str, **fields: Any) -> Any:
    """Return the server as OpenAI's tool."""
    server = {"server_label": "web", "server_url": url, "authorization": SECRET}
    return {"type": "mcp", "require_approval": "never"} | server | fields


def check_called(response: Any) -> None:
    """Check that the server was called with its key, and that nobody is told the key."""
    ran, message = response.output
    assert (ran.type, message.type) == ("mcp_call", "message")
    assert (ran.server_label, ran.name, ran.output) == ("web", "read_header", "Bearer [secret]")
    assert response.output_text == "Bearer [secret]"
    (told,) = response.tools
    assert (told.type, told.server_label, told.authorization) == ("mcp", "web", None)
    assert SECRET not in response.to_json()


def test_a_response_s_server_is_called(api: openai.OpenAI, bare: str, web_server: str) -> None:
    response = api.responses.create(model=bare, input=SAID, tools=[tool(web_server)])
    check_called(response)
    check_response(response.to_dict(mode="python", exclude_unset=True))
    again = api.responses.retrieve(response.id)
    assert again.to_dict() == response.to_dict()


def test_a_streamed_response_s_server_is_called(
    api: openai.OpenAI, bare: str, web_server: str
) -> None:
    events = list(
        api.responses.create(model=bare, input=SAID, tools=[tool(web_server)], stream=True)
    )
    for event in events:
        check_event(event.to_dict(mode="python", exclude_unset=True))
    assert events[-1].type == "response.completed"
    check_called(events[-1].response)


def test_headers_go_to_the_server_and_only_allowed_tools_are_offered(
    api: openai.OpenAI, bare: str, web_server: str
) -> None:
    brought = tool(web_server, headers={"X-Team": "team-of-callers"})
    said = once(call("read_header", name="X-Team"))
    response = api.responses.create(model=bare, input=said, tools=[brought])
    assert response.output_text == "[secret]"

    narrow = brought | {"allowed_tools": ["echo"]}
    counted = [
        api.responses.input_tokens.count(model=bare, input="hi", tools=[each]).input_tokens
        for each in (brought, narrow)
    ]
    assert counted[1] < counted[0]


def test_a_tool_of_the_server_s_may_be_demanded(
    api: openai.OpenAI, bare: str, web_server: str
) -> None:
    choice: Any = {"type": "mcp", "server_label": "web", "name": "read_header"}
    asked: dict[str, Any] = {"model": bare, "input": SAID, "tools": [tool(web_server)]}
    check_called(api.responses.create(**asked, tool_choice=choice))
    with pytest.raises(openai.BadRequestError, match="web__nothing"):
        api.responses.create(**asked, tool_choice=choice | {"name": "nothing"})


def test_a_background_response_s_server_is_called(
    api: openai.OpenAI, bare: str, web_server: str
) -> None:
    made = api.responses.create(model=bare, input=SAID, tools=[tool(web_server)], background=True)
    check_called(ended(api, made.id))


def test_rows_of_message_batches_bring_servers(
    sdk: anthropic.Anthropic, bare: str, web_server: str
) -> None:
    rows = [
        request(bare, "good", SAID, mcp_servers=[connector(web_server)]),
        request(bare, "bad", SAID, mcp_servers=[connector("http://169.254.169.254/")]),
    ]
    found = results(sdk, wait_for_end(sdk, sdk.messages.batches.create(requests=rows)))
    good, bad = found["good"].result, found["bad"].result
    assert good.type == "succeeded"
    use, result, text = (block.to_dict() for block in good.message.content)
    assert (use["type"], use["server_name"], use["name"]) == ("mcp_tool_use", "web", "read_header")
    assert (result["type"], result["is_error"]) == ("mcp_tool_result", False)
    assert text["text"] == "Bearer [secret]"
    assert bad.type == "errored"
    assert bad.error.error.type == "invalid_request_error"
    assert bad.error.error.message.startswith("mcp_servers: the server 'web' cannot be used")


def test_rows_of_a_file_bring_servers(api: openai.OpenAI, bare: str, web_server: str) -> None:
    bodies = {
        "good": {"model": bare, "input": SAID, "tools": [tool(web_server)]},
        "bad": {"model": bare, "input": SAID, "tools": [tool("http://169.254.169.254/")]},
    }
    rows = [
        {"custom_id": name, "method": "POST", "url": RESPONSES, "body": body}
        for name, body in bodies.items()
    ]
    batch = wait(api, submit(api, rows, RESPONSES))
    body = lines(api, batch.output_file_id)["good"]["response"]["body"]
    assert [item["type"] for item in body["output"]] == ["mcp_call", "message"]
    assert body["output"][0]["output"] == "Bearer [secret]"
    assert SECRET not in json.dumps(body)
    response = lines(api, batch.error_file_id)["bad"]["response"]
    assert response["status_code"] == 400
    assert response["body"]["error"]["message"].startswith("tools[0]: the server 'web' cannot be")


def test_an_address_that_is_not_public_is_refused_by_the_tool_s_place(
    api: openai.OpenAI, bare: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=r"tools\[0\]: the server 'web' cannot be"):
        api.responses.create(
            model=bare, input=SAID, tools=[tool("http://169.254.169.254/latest/meta-data")]
        )


def test_where_the_operator_does_not_allow_it_they_are_refused_by_name(
    stack: Stack, gateway: Gateway, chat: openai.OpenAI, bare: str, web_server: str
) -> None:
    gateway.wait_for_model(bare)
    with pytest.raises(openai.BadRequestError) as caught:
        chat.responses.create(model=bare, input=SAID, tools=[tool(web_server)])
    assert caught.value.param == "tools[0]"

    rows = [request(bare, "a", SAID, mcp_servers=[connector(web_server)])]
    with anthropic.Anthropic(base_url=gateway.url, api_key=stack.key) as closed:
        batch = wait_for_end(closed, closed.messages.batches.create(requests=rows))
        result = results(closed, batch)["a"].result
    assert result.type == "errored"
    assert result.error.error.message.startswith("mcp_servers: ")
