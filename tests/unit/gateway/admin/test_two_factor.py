"""A second factor: set up, used, and taken away."""

from __future__ import annotations

import re
from base64 import b32decode

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django_otp.oath import totp
from django_otp.plugins.otp_static.models import StaticToken
from django_otp.plugins.otp_totp.models import TOTPDevice
from pytest_django import Settings

from gateway.admin.two_factor import RECOVERY_CODES
from tests.unit.gateway.admin.operators import sign_in

pytestmark = pytest.mark.django_db

PAGE = "/admin/two-factor/"
OFF = "/admin/two-factor/off/"


def secret_on(page: str) -> bytes:
    found = re.search(r"Or type the secret: <code>([A-Z2-7 ]+)</code>", page)
    assert found is not None
    return b32decode(found[1].replace(" ", ""))


def code_of(secret: bytes) -> str:
    return f"{totp(secret):06d}"


def enrol(client: Client) -> list[str]:
    """Set a second factor up; return the recovery codes."""
    secret = secret_on(client.get(PAGE).content.decode())
    page = client.post(PAGE, {"code": code_of(secret)}).content.decode()
    found = re.search(r"<pre>([a-z2-7\s]+)</pre>", page)
    assert found is not None, page
    return found[1].split()


def forget_last_code(user: User) -> None:
    """Let the phone's code of this half minute count once more."""
    TOTPDevice.objects.filter(user=user).update(last_t=-1)


def test_the_secret_is_shown_as_a_picture_and_as_text_until_it_is_proved(client: Client) -> None:
    sign_in(client)
    page = client.get(PAGE).content.decode()
    assert 'src="data:image/svg+xml' in page
    assert secret_on(client.get(PAGE).content.decode()) == secret_on(page)
    assert not TOTPDevice.objects.get().confirmed


def test_a_right_code_turns_it_on_and_shows_recovery_codes_once(client: Client) -> None:
    user = sign_in(client)
    codes = enrol(client)
    assert len(set(codes)) == RECOVERY_CODES
    assert set(StaticToken.objects.values_list("token", flat=True)) == set(codes)
    assert TOTPDevice.objects.get(user=user).confirmed
    page = client.get(PAGE).content.decode()
    assert f"{RECOVERY_CODES} recovery codes left" in page
    assert not [code for code in codes if code in page]


def test_a_wrong_code_turns_nothing_on(client: Client) -> None:
    sign_in(client)
    secret = secret_on(client.get(PAGE).content.decode())
    wrong = "000000" if code_of(secret) != "000000" else "111111"
    page = client.post(PAGE, {"code": wrong}).content.decode()
    assert "not the code that the phone shows now" in page
    assert secret_on(page) == secret
    assert not TOTPDevice.objects.get().confirmed


def test_setting_it_up_is_enough_where_two_factors_are_asked_for(
    client: Client, settings: Settings
) -> None:
    settings.TANDEM = settings.TANDEM.model_copy(update={"ADMIN_TWO_FACTOR": True})
    sign_in(client, "viewer")
    assert client.get("/admin/gateway/team/").status_code == 302
    enrol(client)
    assert client.get("/admin/gateway/team/").status_code == 200


def test_a_last_code_turns_it_off(client: Client) -> None:
    user = sign_in(client)
    enrol(client)
    forget_last_code(user)
    code = code_of(TOTPDevice.objects.get().bin_key)
    answer = client.post(OFF, {"code": code})
    assert answer.status_code == 302
    assert not TOTPDevice.objects.exists()
    assert not StaticToken.objects.exists()


def test_a_recovery_code_turns_it_off_and_nothing_else_does(client: Client) -> None:
    sign_in(client)
    code, *_ = enrol(client)
    for wrong in ("", "zzzzzzzz"):
        assert client.post(OFF, {"code": wrong}).status_code == 200
    assert TOTPDevice.objects.exists()
    StaticToken.objects.get(token=code).device.throttle_reset()
    assert client.post(OFF, {"code": code}).status_code == 302
    assert not TOTPDevice.objects.exists()


@pytest.mark.parametrize("page", [PAGE, OFF])
def test_only_operators_who_have_signed_in_reach_it(client: Client, page: str) -> None:
    assert client.get(page)["location"].startswith("/admin/login/")
    client.force_login(User.objects.create_user("guest"))
    assert client.get(page)["location"].startswith("/admin/login/")


def test_nobody_sees_another_s_secret(client: Client) -> None:
    other = Client()
    sign_in(other, name="other")
    theirs = secret_on(other.get(PAGE).content.decode())
    sign_in(client)
    assert secret_on(client.get(PAGE).content.decode()) != theirs


def test_the_page_is_never_kept_by_a_browser(client: Client) -> None:
    sign_in(client)
    assert "no-store" in client.get(PAGE)["cache-control"]
