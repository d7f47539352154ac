"""Who is let in to the admin, and how often it is tried."""

from __future__ import annotations

import pytest
from axes.models import AccessAttempt
from django.contrib.auth.models import User
from django.test import Client
from django_otp.oath import totp
from django_otp.plugins.otp_static.models import StaticDevice, StaticToken
from django_otp.plugins.otp_totp.models import TOTPDevice
from pytest_django import Settings

from tests.unit.gateway.admin.operators import sign_in

pytestmark = pytest.mark.django_db

LOGIN = "/admin/login/"
TEAMS = "/admin/gateway/team/"
PASSWORD = "correct horse"


@pytest.fixture
def operator() -> User:
    return User.objects.create_superuser("op", password=PASSWORD)


@pytest.fixture
def phone(operator: User) -> TOTPDevice:
    return TOTPDevice.objects.create(user=operator, name="phone")


@pytest.fixture
def _two_factors(settings: Settings) -> None:
    settings.TANDEM = settings.TANDEM.model_copy(update={"ADMIN_TWO_FACTOR": True})


def code_of(phone: TOTPDevice) -> str:
    return f"{totp(phone.bin_key):06d}"


def try_to(client: Client, password: str = PASSWORD, code: str = "", name: str = "op") -> bool:
    """Try to sign in; return whether it led to what needs it."""
    client.post(LOGIN, {"username": name, "password": password, "otp_token": code})
    return client.get(TEAMS).status_code == 200


def test_a_password_is_enough_where_no_more_is_asked_for(client: Client, operator: User) -> None:
    assert "otp_token" not in client.get(LOGIN).content.decode()
    assert try_to(client)


def test_a_wrong_password_is_not(client: Client, operator: User) -> None:
    assert not try_to(client, "wrong")
    assert not try_to(client, "")


def test_accounts_that_are_no_operators_are_not_let_in(client: Client) -> None:
    User.objects.create_user("op", password=PASSWORD)
    assert not try_to(client)


def test_after_five_wrong_passwords_the_right_one_has_to_wait(
    client: Client, operator: User
) -> None:
    sent = {"username": "op", "password": "wrong"}
    statuses = [client.post(LOGIN, sent).status_code for _ in range(5)]
    assert statuses == [200] * 4 + [429]
    answer = client.post(LOGIN, sent | {"password": PASSWORD})
    assert answer.status_code == 429
    assert "15 minutes" in answer.content.decode()
    assert client.get(TEAMS).status_code == 302


def test_another_name_or_another_address_does_not_wait(client: Client, operator: User) -> None:
    User.objects.create_superuser("other", password=PASSWORD)
    for _ in range(5):
        client.post(LOGIN, {"username": "op", "password": "wrong"})
    assert try_to(client, name="other")
    elsewhere = Client(REMOTE_ADDR="192.0.2.7")
    assert try_to(elsewhere)


def test_another_browser_at_the_same_address_waits_too(client: Client, operator: User) -> None:
    for number in range(5):
        browser = Client(HTTP_USER_AGENT=f"browser {number}")
        browser.post(LOGIN, {"username": "op", "password": "wrong"})
    assert not try_to(client)


def fail_from(settings: Settings, said: str, *, https: bool) -> list[str]:
    """Fail to sign in through a proxy that says where it comes from; return what is kept of it."""
    settings.TANDEM = settings.TANDEM.model_copy(update={"HTTPS": https})
    told = {"X-Forwarded-For": said}
    Client(headers=told).post(LOGIN, {"username": "op", "password": "wrong"})
    return [attempt.ip_address for attempt in AccessAttempt.objects.all()]


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("203.0.113.9, 192.0.2.7", "192.0.2.7"),
        ("2001:db8::1%eth0", "2001:db8::1"),
        ("192.0.2.7, unknown", "127.0.0.1"),
        ("", "127.0.0.1"),
    ],
)
def test_behind_a_proxy_an_address_is_what_the_proxy_adds(
    settings: Settings, said: str, kept: str
) -> None:
    """Else whoever fails would lock the name out for all."""
    assert fail_from(settings, said, https=True) == [kept]


def test_without_a_proxy_nobody_says_where_they_come_from(settings: Settings) -> None:
    assert fail_from(settings, "192.0.2.7", https=False) == ["127.0.0.1"]


def test_a_name_that_is_too_long_is_nobody_s(client: Client) -> None:
    answer = client.post(LOGIN, {"username": "a" * 10_000, "password": PASSWORD})
    assert answer.status_code == 200
    assert not AccessAttempt.objects.exists()


def test_signing_in_begins_the_count_anew(client: Client, operator: User) -> None:
    for _ in range(2):
        for _ in range(4):
            client.post(LOGIN, {"username": "op", "password": "wrong"})
        assert try_to(client)
        client.post("/admin/logout/")


def test_nothing_secret_is_kept_of_a_sign_in_that_failed(client: Client, operator: User) -> None:
    client.post(LOGIN, {"username": "op", "password": "almost", "otp_token": "123456"})
    attempt = AccessAttempt.objects.get()
    kept = f"{attempt.post_data} {attempt.get_data}"
    assert "almost" not in kept
    assert "123456" not in kept


def test_an_owner_lets_somebody_try_again(client: Client, operator: User) -> None:
    for _ in range(5):
        client.post(LOGIN, {"username": "op", "password": "wrong"})
    owner = Client()
    sign_in(owner, "owner", name="owner")
    chosen = {
        "action": "unlock",
        "_selected_action": [str(AccessAttempt.objects.get().pk)],
        "confirmed": "yes",
    }
    owner.post("/admin/axes/accessattempt/", chosen)
    assert try_to(client)


def test_who_has_a_second_factor_is_asked_for_it(client: Client, phone: TOTPDevice) -> None:
    assert not try_to(client)
    sent = {"username": "op", "password": PASSWORD}
    page = client.post(LOGIN, sent).content.decode()
    assert 'name="otp_token"' in page
    assert "Enter the code from your phone, too." in page
    assert not try_to(client, code="000000" if code_of(phone) != "000000" else "111111")
    phone.throttle_reset()
    assert try_to(client, code=code_of(phone))


def test_a_right_code_does_not_make_up_for_a_wrong_password(
    client: Client, phone: TOTPDevice
) -> None:
    assert not try_to(client, "wrong", code_of(phone))


def test_a_code_counts_once(client: Client, phone: TOTPDevice) -> None:
    code = code_of(phone)
    assert try_to(client, code=code)
    assert not try_to(Client(), code=code)


def test_a_recovery_code_counts_once_and_the_phone_s_codes_use_none_up(
    client: Client, operator: User, phone: TOTPDevice
) -> None:
    recovery = StaticDevice.objects.create(user=operator, name="recovery codes")
    StaticToken.objects.create(device=recovery, token="abcd2345")
    assert try_to(client, code=code_of(phone))
    recovery.refresh_from_db()
    # A code that is tried on the wrong device would lock it for longer and longer.
    assert recovery.throttling_failure_count == 0
    assert try_to(Client(), code="abcd2345")
    phone.refresh_from_db()
    assert phone.throttling_failure_count == 0
    assert not try_to(Client(), code="abcd2345")


def test_nobody_signs_in_with_another_s_code(client: Client, phone: TOTPDevice) -> None:
    other = User.objects.create_superuser("other", password=PASSWORD)
    theirs = TOTPDevice.objects.create(user=other, name="phone")
    assert not try_to(client, code=code_of(theirs))


@pytest.mark.usefixtures("_two_factors")
def test_where_two_factors_are_asked_for_one_leads_to_setting_up_the_other(
    client: Client, operator: User
) -> None:
    assert 'name="otp_token"' in client.get(LOGIN).content.decode()
    answer = client.post(LOGIN, {"username": "op", "password": PASSWORD}, follow=True)
    assert answer.redirect_chain[-1][0] == "/admin/two-factor/"
    for page in ("/admin/", TEAMS, "/admin/engines/", "/admin/password_change/"):
        assert client.get(page).status_code == 302, page


@pytest.mark.usefixtures("_two_factors")
def test_a_session_with_one_factor_ends_when_two_are_asked_for(
    client: Client, phone: TOTPDevice
) -> None:
    client.force_login(phone.user)
    assert client.get(TEAMS, follow=True).redirect_chain[-1][0].startswith(LOGIN)
    assert client.get("/admin/two-factor/", follow=True).redirect_chain[-1][0] == LOGIN
    assert try_to(client, code=code_of(phone))


def test_a_session_ends_by_itself_and_its_cookie_is_no_script_s(
    client: Client, operator: User
) -> None:
    client.post(LOGIN, {"username": "op", "password": PASSWORD})
    cookie = client.cookies["sessionid"]
    assert cookie["samesite"] == "Lax"
    assert cookie["httponly"]
    assert cookie["max-age"] == 12 * 60 * 60
