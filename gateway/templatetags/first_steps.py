"""`{% first_steps %}`: what to do first, on the page where a new operator lands."""

from __future__ import annotations

from typing import Any

from django import template

from gateway.admin.screens.first_steps import check_list, is_new

register = template.Library()


@register.inclusion_tag("gateway/first_steps_at_first.html", takes_context=True)
def first_steps(context: dict[str, Any]) -> dict[str, Any]:
    """Show the check-list until there has been a request, and nothing from then on."""
    return check_list(context["request"]) if is_new() else {}
