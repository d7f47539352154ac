"""A session with a real MCP server, over its standard streams."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from mcp.types import ListToolsResult, Tool

from inference.mcp import session as sessions
from inference.mcp.entry import McpServerEntry
from inference.mcp.pool import McpPool
from inference.mcp.session import ServerError, Session, SessionRules
from tests.conftest import Eventually
from tests.unit.inference.mcp.servers import stdio_server

_PATIENCE_S = 60


@pytest.fixture
async def pool() -> AsyncIterator[McpPool]:
    pool = McpPool()
    yield pool
    await pool.close()


def _session(pool: McpPool, **fields: Any) -> Session:
    return pool.session(stdio_server(**fields))


async def test_it_lists_tools_with_their_schemas(pool: McpPool) -> None:
    tools = {tool.name: tool for tool in await _session(pool).tools()}
    assert tools["echo"].description == "Say the same again."
    assert tools["echo"].schema["required"] == ["text"]
    assert tools["echo"].server == "tests"


async def test_it_lists_only_what_the_operator_allows(pool: McpPool) -> None:
    tools = await _session(pool, allowed_tools=("echo", "gone")).tools()
    assert [tool.name for tool in tools] == ["echo"]


async def test_it_calls_a_tool(pool: McpPool) -> None:
    assert await _session(pool).call("echo", {"text": "grüß dich"}) == ("grüß dich", False)


async def test_a_tool_s_own_failure_is_told_to_the_model(pool: McpPool) -> None:
    text, is_error = await _session(pool).call("fail", {"reason": "no such city"})
    assert is_error
    assert "no such city" in text


async def test_a_tool_that_there_is_not_is_a_failure(pool: McpPool) -> None:
    text, is_error = await _session(pool).call("nothing", {})
    assert is_error
    assert "nothing" in text


async def test_what_is_no_text_is_named(pool: McpPool) -> None:
    assert await _session(pool).call("show", {}) == ("[omitted: image]", False)


async def test_a_long_output_is_cut(pool: McpPool) -> None:
    text, _ = await _session(pool, max_output_bytes=10).call("echo", {"text": "ä" * 100})
    assert text == "ä" * 5 + "\n[cut: the first 10 of 200 bytes]"


async def test_a_tool_that_takes_too_long_is_given_up(pool: McpPool, tmp_path: Path) -> None:
    session = _session(pool, timeout_s=0.2)
    # Starting the server takes longer than a call may.
    await _connected(session)
    path = tmp_path / "never"
    text, is_error = await session.call("wait_for", {"path": str(path)})
    assert (text, is_error) == ("The tool did not answer within 0.2 s.", True)
    # On a busy machine this, too, may take longer than a call may.
    async with asyncio.timeout(_PATIENCE_S):
        while await session.call("echo", {"text": "still here"}) != ("still here", False):
            pass


async def test_a_call_that_is_cancelled_is_cancelled_at_the_server(
    pool: McpPool, tmp_path: Path, eventually: Eventually
) -> None:
    path = tmp_path / "never"
    session = _session(pool)
    call = asyncio.create_task(session.call("wait_for", {"path": str(path)}))
    await eventually(path.with_name("never.begun").exists)
    call.cancel()
    await asyncio.wait([call])
    assert call.cancelled()
    await eventually(path.with_name("never.cancelled").exists)
    assert await session.call("echo", {"text": "still here"}) == ("still here", False)


async def test_calls_run_at_the_same_time(pool: McpPool, tmp_path: Path) -> None:
    session = _session(pool)
    path = tmp_path / "awaited"
    slow = asyncio.create_task(session.call("wait_for", {"path": str(path)}))
    assert await session.call("echo", {"text": "first"}) == ("first", False)
    path.touch()
    assert await slow == ("it is there", False)


async def test_a_server_that_dies_fails_its_call_and_is_started_anew(pool: McpPool) -> None:
    session = _session(pool)
    assert len(await session.tools()) > 1
    text, is_error = await session.call("die", {})
    assert is_error
    assert text
    assert len(await session.tools()) > 1
    assert await session.call("echo", {"text": "again"}) == ("again", False)


async def test_the_program_sees_its_secrets_and_no_other_variable(
    pool: McpPool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NOT_FOR_SERVERS", "hidden")
    (tmp_path / "key").write_text("ab\n")
    session = _session(pool, secrets={"KEY": f"<${{file:{tmp_path / 'key'}}}>"})
    assert await session.call("read_variable", {"name": "KEY"}) == ("<ab>", False)
    assert await session.call("read_variable", {"name": "NOT_FOR_SERVERS"}) == ("not set", False)


async def test_a_secret_is_hidden_in_what_tools_say(
    pool: McpPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_KEY", "sk-very-secret")
    session = _session(pool, secrets={"KEY": "${env:THE_KEY}"})
    assert await session.call("read_variable", {"name": "KEY"}) == ("[secret]", False)
    text, is_error = await session.call("fail", {"reason": "bad key sk-very-secret!"})
    assert is_error
    assert "bad key [secret]!" in text


async def test_a_secret_that_is_not_there_is_named_by_its_reference(pool: McpPool) -> None:
    session = _session(pool, secrets={"KEY": "${env:SURELY_NOT_SET}"})
    with pytest.raises(ServerError, match=r"^the environment has no SURELY_NOT_SET$"):
        await session.tools()


@pytest.mark.parametrize("command", [("/nowhere/at/all",), ("true",)])
async def test_a_program_that_is_no_server_is_an_error(
    pool: McpPool, command: tuple[str, ...]
) -> None:
    session = pool.session(McpServerEntry(name="bad", transport="stdio", command=command))
    with pytest.raises(ServerError):
        await session.tools()
    text, is_error = await session.call("echo", {"text": "hello"})
    assert is_error
    assert text


async def test_a_server_that_failed_is_left_alone_for_a_while(
    pool: McpPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    tried = tmp_path / "tried"
    command = ("/bin/sh", "-c", f"echo once >> {tried}")
    session = pool.session(McpServerEntry(name="bad", transport="stdio", command=command))
    for _ in range(3):
        with pytest.raises(ServerError):
            await session.tools()
    assert tried.read_text() == "once\n"
    monkeypatch.setattr(sessions, "RETRY_AFTER_S", 0)
    with pytest.raises(ServerError):
        await session.tools()
    await eventually(lambda: tried.read_text() == "once\nonce\n")


async def test_a_failure_is_news_only_once(pool: McpPool) -> None:
    session = pool.session(McpServerEntry(name="bad", transport="stdio", command=("true",)))
    news = []
    for _ in range(2):
        with pytest.raises(ServerError) as caught:
            await session.tools()
        news.append(caught.value.is_news)
    assert news == [True, False]


async def test_nobody_waits_while_tools_are_listed_anew(
    monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr(sessions, "LISTED_FOR_S", -1)
    server = _Server("first")
    session = _talking_with(server)
    assert [tool.name for tool in await session.tools()] == ["first"]
    server.gate.clear()
    server.tool = "second"
    for _ in range(2):
        assert [tool.name for tool in await session.tools()] == ["first"]
    await eventually(lambda: server.listed == 2)
    assert [tool.name for tool in await session.tools()] == ["first"]
    await session.close()


async def test_a_server_that_has_changed_is_known_when_it_has_said_so(
    monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr(sessions, "LISTED_FOR_S", -1)
    server = _Server("first")
    session = _talking_with(server)
    await session.tools()
    server.tool = "second"
    await session.tools()
    await eventually(lambda: [tool.name for tool in session._tools] == ["second"])
    await session.close()


async def test_a_server_that_does_not_answer_a_call_is_looked_after(
    eventually: Eventually,
) -> None:
    server = _Server("first", timeout_s=0.05)
    session = _talking_with(server)
    await session.tools()
    server.gate.clear()
    assert (await session.call("first", {})).is_error
    await session.tools()
    await eventually(lambda: server.listed == 2)
    await session.close()


async def test_a_session_that_is_closed_lists_nothing_more(eventually: Eventually) -> None:
    server = _Server("first")
    server.gate.clear()
    session = _talking_with(server)
    listing = asyncio.create_task(session.tools())
    await eventually(lambda: server.listed == 1)
    await session.close()
    with pytest.raises(ServerError):
        await listing


async def test_a_server_that_has_too_much_to_say_of_its_tools_is_not_used() -> None:
    session = _talking_with(_Server("first", description="x" * sessions.MAX_LISTED_BYTES))
    with pytest.raises(ServerError, match="more than 1048576 bytes"):
        await session.tools()


async def test_a_pool_has_one_session_for_all(pool: McpPool) -> None:
    first, second = _session(pool), _session(pool)
    calls = await asyncio.gather(first.call("process_id", {}), second.call("process_id", {}))
    assert calls[0] == calls[1]


async def test_nothing_is_left_of_a_pool_that_was_closed(
    pool: McpPool, eventually: Eventually
) -> None:
    text, _ = await _session(pool).call("process_id", {})
    assert int(text) != os.getpid()
    await pool.close()
    await eventually(lambda: not psutil.pid_exists(int(text)))


class _Server:
    """A client whose server has one tool, and answers while `gate` is open."""

    def __init__(self, tool: str, *, description: str = "", timeout_s: float = 60) -> None:
        self.tool = tool
        self.description = description
        self.timeout_s = timeout_s
        self.listed = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def list_tools(self, *, cursor: str | None) -> ListToolsResult:
        self.listed += 1
        await self.gate.wait()
        tool = Tool(name=self.tool, description=self.description, input_schema={"type": "object"})
        return ListToolsResult(tools=[tool])

    async def call_tool(self, _name: str, _arguments: dict[str, Any]) -> None:
        await self.gate.wait()


def _talking_with(server: _Server) -> Session:
    @asynccontextmanager
    async def open_client() -> AsyncIterator[Any]:
        yield server

    rules = SessionRules(
        allows=lambda _: True,
        hide=lambda text: text,
        timeout_s=server.timeout_s,
        max_output_bytes=100,
    )
    return Session("tests", open_client, rules)


async def _connected(session: Session) -> None:
    """Wait until the session's program has answered once."""
    async with asyncio.timeout(60):
        while (await session.call("echo", {"text": "there"})).is_error:
            pass
