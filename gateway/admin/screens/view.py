"""What makes a function a page of the admin: the login, a permission, the frame, the changes."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple, cast

from django.contrib import admin
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import HttpRequest, HttpResponseBase
from django.template.response import TemplateResponse

View = Callable[..., HttpResponseBase]

_REPR_CHARS = 200


def screen(*permissions: str) -> Callable[[View], View]:
    """Let in staff who are logged in and have all of these permissions; others get 403.

    As the site's own pages it is never cached and checks for forged posts.
    """

    def decorate(view: View) -> View:
        @wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if not request.user.has_perms(permissions):
                raise PermissionDenied
            return view(request, *args, **kwargs)

        @wraps(view)
        def served(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            # Not before: the site is made of modules that import this one.
            return admin.site.admin_view(guarded)(request, *args, **kwargs)

        return served

    return decorate


def show(request: HttpRequest, template: str, title: str, **context: Any) -> TemplateResponse:
    """Return a page in the site's frame."""
    frame = admin.site.each_context(request)
    return TemplateResponse(request, template, frame | {"title": title} | context)


class Subject(NamedTuple):
    """What was changed, where that is no row that is at hand; `name` is what lists call it."""

    model: type[Model]
    pk: str
    name: str


def note(request: HttpRequest, changed: Model | Subject, done: str) -> None:
    """Add to the list of changes what this operator did."""
    if isinstance(changed, Model):
        changed = Subject(type(changed), str(changed.pk), str(changed))
    LogEntry.objects.create(
        user_id=cast("int", request.user.pk),
        content_type=ContentType.objects.get_for_model(changed.model),
        object_id=changed.pk,
        object_repr=changed.name[:_REPR_CHARS],
        action_flag=CHANGE,
        change_message=done,
    )
