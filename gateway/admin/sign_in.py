"""Who is let in to the admin: by a password and, where that is asked for, a second factor.

The second factor is a code from a phone (TOTP), or one of the recovery codes that were shown when
it was set up. Whoever has one is always asked for it. With ADMIN_TWO_FACTOR, everybody must have
one: who has none is let in to set it up, and nowhere else.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from django import forms
from django.conf import settings
from django.contrib import admin
from django.core.validators import MaxLengthValidator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django_otp import user_has_device
from django_otp.forms import OTPAuthenticationFormMixin
from django_otp.models import Device
from django_otp.plugins.otp_static.models import StaticDevice
from django_otp.plugins.otp_totp.models import TOTPDevice

from gateway.admin.theme import AuthenticationForm, TextInput

if TYPE_CHECKING:
    from django.contrib.admin.forms import AdminAuthenticationForm as _PasswordForm

    class _CodeForm:
        otp_error_messages: dict[str, Any]

        def clean_otp(self, user: Any) -> None: ...

else:
    _PasswordForm = AuthenticationForm
    _CodeForm = OTPAuthenticationFormMixin

CODE_DIGITS = 6
"""Of a phone's code; recovery codes are longer."""


class LoginForm(_CodeForm, _PasswordForm):
    """Name and password, and a code from whoever has a second factor."""

    otp_token = forms.CharField(
        label="Code",
        required=False,
        max_length=16,
        help_text="From your phone, or a recovery code.",
        widget=TextInput({"autocomplete": "one-time-code", "autofocus": ""}),
    )
    otp_error_messages = OTPAuthenticationFormMixin.otp_error_messages | {
        "token_required": "Enter the code from your phone, too.",
        "invalid_token": "This code is wrong, or has been used before.",
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.asks_for_code: bool = settings.TANDEM.ADMIN_TWO_FACTOR
        # Django only tells the browser; what fails is written down, however long.
        name = self.fields["username"]
        name.validators.append(MaxLengthValidator(name.max_length))  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        """Check the password, and then the code of who has a second factor."""
        cleaned: dict[str, Any] = super().clean()
        user = self.get_user()
        if user is not None and user_has_device(user):
            self.asks_for_code = True
            self.clean_otp(user)
        return cleaned

    def _chosen_device(self, user: Any) -> Device | None:
        """Return the device that gave a code of this form, locked: a code that is tried on another
        one would count as a failure there."""
        return device_for(user, self.cleaned_data.get("otp_token", ""))


def device_for(user: Any, code: str) -> Device | None:
    """Return the user's device whose codes look like this one, locked; None if there is none."""
    is_phone = len(code) == CODE_DIGITS and code.isdecimal()
    model = TOTPDevice if is_phone else StaticDevice
    found: Device | None = (
        model.objects.devices_for_user(user, confirmed=True).select_for_update().first()
    )
    return found


def is_let_in(request: HttpRequest) -> bool:
    """Whether an operator who has signed in has shown as many factors as there must be."""
    return not settings.TANDEM.ADMIN_TWO_FACTOR or is_verified(request)


def is_verified(request: HttpRequest) -> bool:
    """Whether who makes the request has shown a second factor."""
    verified: bool = request.user.is_verified()  # type: ignore[union-attr]
    return verified


def is_operator(request: HttpRequest) -> bool:
    """Whether who makes the request has signed in, however many factors that took."""
    return request.user.is_active and request.user.is_staff


def has_role(user: Any) -> bool:
    """Whether an account may do anything: by a role, or by permissions of its own."""
    return user.is_superuser or bool(user.get_all_permissions())


def must_enrol(request: HttpRequest) -> bool:
    """Whether an operator who has signed in may do nothing but set up a second factor."""
    return is_operator(request) and not is_let_in(request) and not user_has_device(request.user)


def address_of(request: HttpRequest) -> str | None:
    """Return where a sign-in comes from; behind a proxy, what the proxy says.

    Its own address is everybody's: whoever fails would lock a name out for all.
    """
    peer: str | None = request.META.get("REMOTE_ADDR")
    if not settings.TANDEM.HTTPS:
        return peer
    # The last, which the proxy has added: what comes before it, a client may have made up.
    told = request.META.get("HTTP_X_FORWARDED_FOR", "").rpartition(",")[2].strip()
    try:
        return str(ip_address(told.partition("%")[0]))
    except ValueError:
        return peer


def locked_out(
    request: HttpRequest, response: HttpResponse | None, credentials: dict[str, Any] | None
) -> HttpResponse:
    """Answer a sign-in that comes after too many that failed."""
    minutes = int(settings.AXES_COOLOFF_TIME.total_seconds() // 60)
    frame = admin.site.each_context(request)
    context = frame | {"title": "Too many failed sign-ins", "minutes": minutes}
    return render(request, "admin/locked_out.html", context, status=429)
