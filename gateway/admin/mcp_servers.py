"""MCP servers, whose tools models may call."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from shlex import join
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.contrib import admin
from django.http import HttpRequest

from gateway.admin.connections import Check, ConnectionAdmin
from gateway.admin.lines import ArgumentsField, NamesField
from gateway.admin.theme import ChoiceFilter, YesNoFilter
from inference.catalogue import load_mcp_servers
from inference.models import McpServer
from inference.transport.nudge import Topic

if TYPE_CHECKING:
    _McpServerForm = forms.ModelForm[McpServer]
else:
    _McpServerForm = forms.ModelForm


class McpServerForm(_McpServerForm):
    """A server; lists are typed as lines."""

    class Meta:
        """What is a list."""

        model = McpServer
        fields = "__all__"
        field_classes: ClassVar = {"command": ArgumentsField, "allowed_tools": NamesField}


@admin.register(McpServer)
class McpServerAdmin(ConnectionAdmin):
    """Secrets are only referred to: nothing that is shown here is one."""

    topic = Topic.CATALOGUE
    form = McpServerForm
    shell_command = "check_mcp_server NAME"
    list_display = ["name", "transport", "command_line", "url", "enabled"]
    list_filter = [("transport", ChoiceFilter), ("enabled", YesNoFilter)]
    search_fields = ["name", "url"]
    fieldsets = [
        (None, {"fields": ["name", "enabled"]}),
        ("Where it is", {"fields": ["transport", "command", "url", "secrets"]}),
        ("What it may do", {"fields": ["allowed_tools", "timeout_s", "max_output_bytes"]}),
    ]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Keep the name: saving under another one would make a second server."""
        return ["name"] if obj else []

    @admin.display(description="command")
    def command_line(self, server: McpServer) -> str:
        """Return the command as a shell takes it."""
        return join(server.command)

    def connection_checks(self, names: Sequence[str]) -> list[Check]:
        """Connect, and list tools."""
        # The SDK is large, and a gateway needs it for nothing else.
        from inference.mcp.check import check_server

        servers = load_mcp_servers()
        return [partial(check_server, servers[name]) for name in names]
