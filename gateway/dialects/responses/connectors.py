"""MCP servers that a request brings along, as OpenAI's `mcp` tools.

They are run as Anthropic's connector is, where the operator allows it. Elsewhere they are refused
by name, not skipped: nobody who brings a server wants an answer made without it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from gateway.dialects.connectors import ServerName, ServerToken, ServerUrl
from gateway.dialects.validation import Wire
from inference.request import RequestedServer

# They say where a request goes and how it is framed, which is not the caller's to say.
_OWN_HEADERS = frozenset(
    {
        *("host", "connection", "keep-alive", "upgrade", "te", "trailer", "transfer-encoding"),
        *("content-length", "content-type", "accept", "accept-encoding", "expect"),
    }
)
_OWN_FAMILIES = ("proxy-", "mcp-")


def _a_callers_header(name: str) -> str:
    if name.lower() in _OWN_HEADERS or name.lower().startswith(_OWN_FAMILIES):
        raise ValueError("this header cannot be set")
    return name


HeaderName = Annotated[
    str, Field(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}$"), AfterValidator(_a_callers_header)
]
HeaderValue = Annotated[str, Field(pattern=r"^[\t\x20-\x7e]*$", max_length=8192)]


class ResponsesMcpToolFilter(Wire):
    """Tools by their names. What servers say of their tools is not asked: no `read_only`."""

    tool_names: list[str] | None = None
    read_only: None = None


def _as_filter(value: Any) -> Any:
    return {"tool_names": value} if isinstance(value, list) else value


class ResponsesMcpTool(Wire):
    """An MCP server whose tools are run for the answer, where the operator allows it.

    Nobody is asked before a call, so `require_approval` must say that nobody wants to be. What
    `server_description`, `defer_loading` and `allowed_callers` say has no effect.
    """

    type: Literal["mcp"]
    server_label: ServerName
    server_url: ServerUrl
    authorization: ServerToken | None = None
    """Goes to the server as a bearer token and nowhere else."""
    headers: Annotated[dict[HeaderName, HeaderValue], Field(max_length=32)] | None = None
    """Go to the server and nowhere else."""
    allowed_tools: (
        Annotated[
            ResponsesMcpToolFilter,
            BeforeValidator(_as_filter, json_schema_input_type=list[str] | ResponsesMcpToolFilter),
        ]
        | None
    ) = None
    """The tools that are offered; without it all are."""
    require_approval: Literal["never"]
    connector_id: None = None
    tunnel_id: None = None

    def requested(self, path: str) -> RequestedServer:
        """Return the server as the engine is told of it; `path` is where the request names it."""
        allowed = self.allowed_tools and self.allowed_tools.tool_names
        return RequestedServer(
            name=self.server_label,
            url=self.server_url,
            path=path,
            token=self.authorization,
            headers={name.lower(): value for name, value in (self.headers or {}).items()},
            enabled=allowed is None,
            exceptions=tuple(allowed or ()),
        )
