"""The canonical request: what every dialect is parsed into and every backend is given."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec


class Lane(StrEnum):
    """The queue that a request waits in, most urgent first."""

    REALTIME = "realtime"
    FLEX = "flex"
    BACKGROUND = "background"
    BATCH = "batch"


# The place of each lane: the most urgent one has the lowest.
URGENCY = {lane: place for place, lane in enumerate(Lane)}


class Role(StrEnum):
    """Who speaks a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class TextPart(msgspec.Struct, frozen=True, tag="text"):
    """Plain text inside a message."""

    text: str


class ImagePart(msgspec.Struct, frozen=True, tag="image"):
    """An image, fetched and checked: `data` is the encoded file, of the kind `media_type`."""

    media_type: str
    data: bytes


class ThinkingPart(msgspec.Struct, frozen=True, tag="thinking"):
    """The reasoning of an earlier assistant turn."""

    text: str


class ToolCallPart(msgspec.Struct, frozen=True, kw_only=True, tag="tool_call"):
    """A call that the assistant made in an earlier turn. `arguments` is JSON text."""

    id: str
    name: str
    arguments: str


class ToolResultPart(msgspec.Struct, frozen=True, kw_only=True, tag="tool_result"):
    """What a call of the turn before came to; stands in a user message."""

    call_id: str
    parts: tuple[TextPart | ImagePart, ...]
    is_error: bool = False


class ServerToolCallPart(msgspec.Struct, frozen=True, kw_only=True, tag="server_tool_call"):
    """A call that the server ran itself; stands in an assistant message. `arguments` is JSON text.

    `server` is the name of the MCP server that has the tool, and `name` the tool's own there.
    """

    id: str
    server: str
    name: str
    arguments: str


class ServerToolResultPart(msgspec.Struct, frozen=True, kw_only=True, tag="server_tool_result"):
    """What such a call came to; stands behind it in the same message."""

    call_id: str
    text: str
    is_error: bool = False


Part = (
    TextPart
    | ImagePart
    | ThinkingPart
    | ToolCallPart
    | ToolResultPart
    | ServerToolCallPart
    | ServerToolResultPart
)


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of the conversation. `parts` is never empty."""

    role: Role
    parts: tuple[Part, ...]


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How tokens are chosen. `None` means the model's own default.

    `temperature` 0 is greedy; `top_p` lies in (0, 1]; `top_k` is at least 1; `stop` holds the
    texts that end the answer, none of them empty. `min_p` lies in [0, 1], the two penalties in
    [-2, 2], `repetition_penalty` is above 0. `logit_bias` maps token ids (as decimal text) to
    [-100, 100]. `logprobs` asks for the log probability of each token of the answer, and of that
    many likely others beside it (0 to 20). `cut_to_context` lowers `max_tokens` to what the prompt
    leaves of the context: for callers who named no number.
    """

    max_tokens: int
    cut_to_context: bool = False
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    min_p: float | None = None
    min_tokens: int = 0
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    logprobs: int | None = None


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A function that the caller runs. `schema` is the JSON Schema of its arguments.

    `strict` asks that arguments match the schema even where the model calls of its own accord.
    """

    name: str
    schema: dict[str, Any]
    description: str = ""
    strict: bool = False


class ToolMode(StrEnum):
    """Whether the answer may, must not or must call tools."""

    AUTO = "auto"
    NONE = "none"
    ANY = "any"
    NAMED = "named"


class ToolChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Which tools may be called: `name` is the one that NAMED demands."""

    mode: ToolMode = ToolMode.AUTO
    name: str | None = None
    parallel: bool = True


class RequestedServer(msgspec.Struct, frozen=True, kw_only=True):
    """An MCP server that the caller brings along, whose tools the service runs.

    `path` is where the request names it, for what is wrong with it. `token` goes to it as a bearer
    token, and `headers`, whose names are in lower case, as they are; neither goes anywhere else.
    `enabled` says whether its tools are offered; for those that `exceptions` names it is the other
    way round.
    """

    name: str
    url: str
    path: str = "mcp_servers"
    token: str | None = None
    headers: dict[str, str] = {}
    enabled: bool = True
    exceptions: tuple[str, ...] = ()

    def allows(self, tool: str) -> bool:
        """Say whether the caller wants that tool offered."""
        return self.enabled != (tool in self.exceptions)


class CacheMark(msgspec.Struct, frozen=True, kw_only=True):
    """The end of the prefix that the caller wants cached: up to and including this part.

    `message` -1 means the tools and nothing of the messages.
    """

    message: int
    part: int


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """Whose request it is: what it costs goes to this team, and shows beside this key (a UUID)."""

    team_id: int
    key_id: str


class RawRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller sent, for an upstream that speaks the caller's API.

    `path` is that of its URL, from `/v1` on and with its query; `headers` are those that go with
    the body, their names in lower case. `stream`: the body asks for server-sent events.
    """

    path: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    stream: bool = False

    @property
    def counts(self) -> bool:
        """Whether it only asks for the number of the prompt's tokens."""
        return self.path.partition("?")[0].endswith("/count_tokens")


class GenerationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request for one answer, whichever dialect asked and wherever it runs.

    `id` is a UUID in its canonical form; `model` is a catalogue id; `deadline_s` is in seconds
    of Unix time; `cache_salt` keeps one team's prefix cache apart from another's. `thinking` None
    is the model's default; `output_schema` is the JSON Schema that the answer's text must match.
    `owner` None is the service's own asking, as for a canary: nobody pays. `choice` counts the
    answers that were asked for to one prompt, from 0: each is a request of its own, and with
    `shares_prompt` only the first one's prompt is counted, which the others find in the cache.
    `servers` are those that the caller brings along. `can_pause`: the caller can send the
    conversation back when the server has run tools as often as it may; other callers get an answer
    made without tools then. With `raw`, that says all, and the fields that only say what is asked
    are empty; of `sampling` there is `max_tokens`.
    """

    id: str
    model: str
    messages: tuple[Message, ...]
    sampling: Sampling
    deadline_s: float
    lane: Lane = Lane.REALTIME
    owner: Owner | None = None
    cache_salt: str | None = None
    cache_mark: CacheMark | None = None
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    thinking: bool | None = None
    thinking_budget_tokens: int | None = None
    choice: int = 0
    shares_prompt: bool = True
    servers: tuple[RequestedServer, ...] = ()
    can_pause: bool = False
    output_schema: dict[str, Any] | None = None
    raw: RawRequest | None = None

    @property
    def counts_prompt(self) -> bool:
        """Whether its prompt is counted, and paid for."""
        return self.choice == 0 or not self.shares_prompt
