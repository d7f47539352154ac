"""An operator's second factor: set up with a phone, and taken away."""

from __future__ import annotations

from base64 import b32encode
from collections.abc import Callable
from functools import wraps

import segno
from django import forms
from django.contrib import messages
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.cache import never_cache
from django_otp import login as show_factor
from django_otp import user_has_device
from django_otp.plugins.otp_static.models import StaticDevice, StaticToken
from django_otp.plugins.otp_totp.models import TOTPDevice

from gateway.admin.screens.view import show
from gateway.admin.sign_in import CODE_DIGITS, device_for, is_let_in, is_operator
from gateway.admin.theme import TextInput

RECOVERY_CODES = 10

_View = Callable[[HttpRequest, User], HttpResponse]


class CodeForm(forms.Form):
    """Asks for one code."""

    code = forms.CharField(
        max_length=16, widget=TextInput({"autocomplete": "one-time-code", "autofocus": ""})
    )


def _own_account(view: _View) -> Callable[[HttpRequest], HttpResponse]:
    """Serve operators about themselves, those too who must set up a second factor first."""

    @wraps(view)
    def guarded(request: HttpRequest) -> HttpResponse:
        owes_a_code = user_has_device(request.user) and not is_let_in(request)
        if owes_a_code or not is_operator(request):
            return redirect("admin:login")
        assert isinstance(request.user.pk, int)
        return view(request, User.objects.get(pk=request.user.pk))

    return never_cache(guarded)


@_own_account
def enrol(request: HttpRequest, user: User) -> HttpResponse:
    """Show a secret to be kept by the phone, and believe it once it gives a right code."""
    if user_has_device(user):
        left = StaticToken.objects.filter(device__user=user).count()
        return _show(request, "admin/two_factor_on.html", recovery_codes_left=left)
    form = CodeForm(request.POST or None)
    with transaction.atomic():
        device, _ = TOTPDevice.objects.select_for_update().get_or_create(
            user=user, confirmed=False, defaults={"name": "phone", "digits": CODE_DIGITS}
        )
        if form.is_valid():
            if device.verify_token(form.cleaned_data["code"]):
                return _enrolled(request, device)
            form.add_error("code", "This is not the code that the phone shows now.")
    secret = b32encode(device.bin_key).decode()
    return _show(
        request,
        "admin/two_factor.html",
        form=form,
        secret=" ".join(secret[start : start + 4] for start in range(0, len(secret), 4)),
        picture=segno.make(device.config_url).svg_data_uri(scale=5, light="white"),
    )


def _enrolled(request: HttpRequest, device: TOTPDevice) -> HttpResponse:
    device.confirmed = True
    device.save(update_fields=["confirmed"])
    recovery = StaticDevice.objects.create(user=device.user, name="recovery codes")
    codes = [StaticToken.random_token() for _ in range(RECOVERY_CODES)]
    StaticToken.objects.bulk_create(StaticToken(device=recovery, token=code) for code in codes)
    show_factor(request, device)
    return _show(request, "admin/two_factor_codes.html", codes=codes)


@_own_account
def remove(request: HttpRequest, user: User) -> HttpResponse:
    """Take the second factor away, for a last code."""
    form = CodeForm(request.POST or None)
    if form.is_valid():
        code = form.cleaned_data["code"]
        with transaction.atomic():
            device = device_for(user, code)
            is_right = device is not None and device.verify_token(code)
            if is_right:
                forget_factors(user)
        if is_right:
            messages.success(request, "Signing in takes no second factor any more.")
            return redirect("admin:two_factor")
        form.add_error("code", "This code is wrong, or has been used before.")
    return _show(request, "admin/two_factor_off.html", form=form)


def forget_factors(user: User) -> int:
    """Remove every second factor of an account; return how many there were."""
    found = [*TOTPDevice.objects.filter(user=user), *StaticDevice.objects.filter(user=user)]
    for device in found:
        device.delete()
    return len(found)


def _show(request: HttpRequest, template: str, **context: object) -> HttpResponse:
    return show(request, template, "Two-factor sign-in", **context)
