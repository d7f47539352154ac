"""Tools that the server runs: a real MCP server, every API, and the official SDKs."""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import psutil
import pytest

from tests.acceptance.client import Client, body, script
from tests.acceptance.conftest import MakeClient
from tests.acceptance.stack import ROOT, Gateway, Server, Stack, ending, eventually
from tests.acceptance.teams import rows

pytestmark = pytest.mark.acceptance

SERVER = str(ROOT / "tests" / "mcp_server.py")
SECRET = "sk-planted-1f0b7c"
OWN = {"name": "mine", "input_schema": {"type": "object", "properties": {}}}

either_way = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


def call(tool: str, /, **arguments: Any) -> dict[str, Any]:
    # In several lines, as models like to write.
    return {"name": tool, "arguments": [json.dumps(arguments, indent=1)]}


def once(*calls: dict[str, Any], **directives: Any) -> str:
    """Return a message whose answer makes these calls, and then says what they came to."""
    return script(**({"text": "", "tool_calls": list(calls), "echo_results": True} | directives))


@pytest.fixture(scope="module")
def tooled(stack: Stack) -> str:
    """Return a model with the tests' MCP server; it has no engine yet."""
    name = stack.add_model("tooled", tool_recursion_limit=2)
    stack.add_mcp_server(
        "tests",
        name,
        command=[sys.executable, SERVER],
        secrets={"PLANTED": "${env:PLANTED_KEY}"},
    )
    return name


@pytest.fixture(scope="module")
def worker(stack: Stack, gateway: Gateway, tooled: str) -> Iterator[Server]:
    started = stack.start_worker(tooled, PLANTED_KEY=SECRET, MCP_HOSTS_ALLOWED="127.0.0.1")
    with ending(started) as worker:
        gateway.wait_for_model(tooled)
        yield worker


@pytest.fixture
def model(tooled: str, worker: Server) -> str:
    """Return the model with its engine."""
    return tooled


def answer(sdk: anthropic.Anthropic, *, streamed: bool, **asked: Any) -> anthropic.types.Message:
    if not streamed:
        message: anthropic.types.Message = sdk.messages.create(**asked)
        return message
    with sdk.messages.stream(**asked) as stream:
        return stream.get_final_message()


def kinds(message: anthropic.types.Message) -> list[str]:
    return [block.type for block in message.content]


@either_way
def test_a_call_is_run_and_told(sdk: anthropic.Anthropic, model: str, streamed: bool) -> None:
    asked = body(model, once(call("echo", text="grüß dich"), text="Hm."))
    message = answer(sdk, streamed=streamed, **asked)
    assert kinds(message) == ["text", "mcp_tool_use", "mcp_tool_result", "text"]
    use: Any = message.content[1]
    assert (use.name, use.server_name, use.input) == ("echo", "tests", {"text": "grüß dich"})
    assert use.id.startswith("mcptoolu_")
    last: Any = message.content[-1]
    assert last.text == "grüß dich"
    assert message.stop_reason == "end_turn"


@either_way
def test_a_failure_of_the_tool_goes_to_the_model(
    sdk: anthropic.Anthropic, model: str, streamed: bool
) -> None:
    message = answer(sdk, streamed=streamed, **body(model, once(call("fail", reason="no city"))))
    result: Any = message.content[1]
    assert result.is_error
    assert message.stop_reason == "end_turn"


@either_way
def test_a_round_with_the_caller_s_tools_ends_for_the_caller(
    sdk: anthropic.Anthropic, model: str, streamed: bool
) -> None:
    said = once(call("echo", text="ours"), call("mine"))
    first = answer(sdk, streamed=streamed, **body(model, said, tools=[OWN]))
    assert sorted(kinds(first)) == ["mcp_tool_result", "mcp_tool_use", "tool_use"]
    assert first.stop_reason == "tool_use"

    (own,) = (block for block in first.content if block.type == "tool_use")
    result = {"type": "tool_result", "tool_use_id": own.id, "content": "theirs"}
    content = [block.to_dict() for block in first.content]
    messages = [
        {"role": "user", "content": said},
        {"role": "assistant", "content": content},
        {"role": "user", "content": [result]},
    ]
    second = answer(
        sdk, streamed=streamed, model=model, max_tokens=100, tools=[OWN], messages=messages
    )
    told: Any = second.content[0]
    assert told.text in ("ourstheirs", "theirsours")


def test_a_pause_is_resumed_by_sending_it_back(sdk: anthropic.Anthropic, model: str) -> None:
    calls = [call("echo", text="again")]
    paused = answer(sdk, streamed=True, **body(model, script(text="", tool_calls=calls)))
    assert paused.stop_reason == "pause_turn"
    assert kinds(paused) == ["mcp_tool_use", "mcp_tool_result"] * 2

    messages = [
        {"role": "user", "content": once(*calls)},
        {"role": "assistant", "content": [block.to_dict() for block in paused.content]},
    ]
    resumed = answer(sdk, streamed=True, model=model, max_tokens=100, messages=messages)
    assert (kinds(resumed), resumed.stop_reason) == (["text"], "end_turn")


def test_tokens_are_counted_with_the_tools(sdk: anthropic.Anthropic, model: str) -> None:
    asked = {"model": model, "messages": [{"role": "user", "content": once(call("echo"))}]}
    counted = sdk.messages.count_tokens(**asked)  # type: ignore[arg-type]
    assert counted.input_tokens > 100


@either_way
def test_chat_sees_the_answer_only(chat: openai.OpenAI, model: str, streamed: bool) -> None:
    asked: Any = {
        "model": model,
        "messages": [{"role": "user", "content": once(call("echo", text="noon"), text="Hm.")}],
    }
    if streamed:
        chunks = list(chat.chat.completions.create(**asked, stream=True))
        choices = [choice for chunk in chunks for choice in chunk.choices]
        text = "".join(choice.delta.content or "" for choice in choices)
        assert not any(choice.delta.tool_calls for choice in choices)
        reason = choices[-1].finish_reason
    else:
        (choice,) = chat.chat.completions.create(**asked).choices
        assert not choice.message.tool_calls
        text, reason = choice.message.content or "", choice.finish_reason
    assert (text, reason) == ("Hm.\n\nnoon", "stop")


def test_chat_gets_an_answer_at_the_limit(chat: openai.OpenAI, model: str) -> None:
    said = script(text="Hm.", tool_calls=[call("echo", text="again")])
    completion = chat.chat.completions.create(
        model=model, messages=[{"role": "user", "content": said}]
    )
    assert completion.choices[0].finish_reason == "stop"
    assert completion.choices[0].message.content == "Hm.\n\nHm.\n\nHm."


@either_way
def test_responses_have_an_item_for_each_call(
    chat: openai.OpenAI, model: str, streamed: bool
) -> None:
    asked: Any = {"model": model, "input": once(call("echo", text="noon"))}
    if streamed:
        events = list(chat.responses.create(**asked, stream=True))
        assert "response.mcp_call.completed" in [event.type for event in events]
        response = events[-1].response
    else:
        response = chat.responses.create(**asked)
    assert [item.type for item in response.output] == ["mcp_call", "message"]
    ran: Any = response.output[0]
    assert (ran.server_label, ran.name, ran.output) == ("tests", "echo", "noon")
    assert json.loads(ran.arguments) == {"text": "noon"}
    assert response.output_text == "noon"


def test_a_response_goes_on_from_one_with_calls(chat: openai.OpenAI, model: str) -> None:
    first = chat.responses.create(model=model, input=once(call("echo", text="noon")))
    second = chat.responses.create(
        model=model, input=script(text="Well."), previous_response_id=first.id
    )
    assert second.output_text == "Well."


def test_a_stream_is_pinged_while_a_tool_runs(
    stack: Stack, make_client: MakeClient, model: str, tmp_path: Path
) -> None:
    pinging = stack.start_gateway(PING_INTERVAL_S="0.1")
    with ending(pinging.server):
        pinging.wait_for_model(model)
        client, path = make_client(pinging), tmp_path / "awaited"
        with client.stream(model, once(call("wait_for", path=str(path)))) as stream:
            stream.wait_for("content_block_start")
            stream.wait_for("ping")
            path.touch()
            assert stream.rest()[-1].name == "message_stop"


def test_leaving_cancels_the_call(client: Client, model: str, tmp_path: Path) -> None:
    path = tmp_path / "never"
    with client.stream(model, once(call("wait_for", path=str(path)))):
        eventually(path.with_name("never.begun").exists, "the call has begun")
    eventually(path.with_name("never.cancelled").exists, "the call was cancelled")


# Servers that requests bring along.


def test_a_request_may_bring_a_server_where_the_operator_allows_it(
    stack: Stack, make_client: MakeClient, client: Client, model: str, web_server: str
) -> None:
    server = {"type": "url", "name": "web", "url": web_server, "authorization_token": SECRET}
    # Both servers have tools of these names.
    said = once(call("web__read_header", name="Authorization"))
    open_gateway = stack.start_gateway(MCP_SERVERS_IN_REQUESTS="true")
    with ending(open_gateway.server):
        open_gateway.wait_for_model(model)
        told = make_client(open_gateway).ask(model, said, mcp_servers=[server]).json()
        assert told["content"][0]["server_name"] == "web"
        assert told["content"][1]["content"][0]["text"] == "Bearer [secret]"

        strange = server | {"url": "http://169.254.169.254/mcp"}
        refused = make_client(open_gateway).ask(model, said, mcp_servers=[strange])
        assert refused.status_code == httpx.codes.BAD_REQUEST
        assert "'web' cannot be used" in refused.json()["error"]["message"]

    ignored = client.ask(model, script(text="Hm."), mcp_servers=[server])
    assert ignored.headers["tandem-ignored-fields"] == "mcp_servers"


# What nobody may see.


def test_secrets_are_in_no_answer_log_or_table(
    stack: Stack, client: Client, model: str, web_server: str
) -> None:
    told = client.ask(model, once(call("read_variable", name="PLANTED"))).json()
    assert told["content"][1]["content"] == [{"type": "text", "text": "[secret]"}]
    server = {"type": "url", "name": "web", "url": web_server, "authorization_token": SECRET}
    told = client.ask(model, script(text="Hm."), mcp_servers=[server]).json()
    with ending(stack.start_clerk(SETTLE_AFTER_S="2")):
        eventually(lambda: _recorded(stack, told["id"]), "the request is recorded")
    assert not [log.name for log in stack.layout.logs.iterdir() if SECRET in log.read_text()]
    kept = rows(stack, "SELECT body, answer FROM jobs_requestbody")
    packed = [bytes(column) for columns in kept for column in columns if column]
    assert packed
    assert not [data for data in map(zlib.decompress, packed) if SECRET.encode() in data]
    for (table,) in rows(stack, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"):
        query = f'SELECT 1 FROM "{table}" AS one WHERE one::text LIKE %s'  # noqa: S608
        assert not rows(stack, query, f"%{SECRET}%"), table


def _recorded(stack: Stack, message_id: str) -> bool:
    query = "SELECT 1 FROM jobs_requestbody WHERE record_id = %s"
    return bool(rows(stack, query, message_id.removeprefix("msg_")))


def test_nothing_is_left_of_a_worker_that_is_killed(
    stack: Stack, gateway: Gateway, make_client: MakeClient
) -> None:
    model = stack.add_model("tooled-and-killed")
    stack.add_mcp_server("doomed", model, command=[sys.executable, SERVER])
    worker = stack.start_worker(model)
    gateway.wait_for_model(model)
    told = make_client(gateway).ask(model, once(call("process_id"))).json()
    process = int(told["content"][1]["content"][0]["text"])
    assert psutil.pid_exists(process)
    worker.kill()
    eventually(lambda: not psutil.pid_exists(process), "the MCP server has ended")
