"""Prices in the admin."""

from __future__ import annotations

from datetime import timedelta
from html import unescape

import pytest
from django.test import Client
from django.utils import timezone

from inference.models import Model
from jobs.models import Price

pytestmark = pytest.mark.django_db

PRICES = "/admin/jobs/price/"


@pytest.fixture(autouse=True)
def _model() -> None:
    Model.objects.create(id="tiny", context_tokens=1)


def price_form(**changes: object) -> dict[str, object]:
    return {
        "model": "tiny",
        "effective_from_0": "",
        "effective_from_1": "",
        "input_micros_per_mtok": "3",
        "cached_input_micros_per_mtok": "0.3",
        "cache_write_micros_per_mtok": "3.75",
        "output_micros_per_mtok": "15",
        "flex_permille": 500,
        "background_permille": 500,
        "batch_permille": 250,
    } | changes


def make_price(**fields: object) -> Price:
    values = {
        "model": "tiny",
        "input_micros_per_mtok": 1,
        "cached_input_micros_per_mtok": 1,
        "cache_write_micros_per_mtok": 1,
        "output_micros_per_mtok": 1,
    }
    return Price.objects.create(**(values | fields))


def test_a_price_is_typed_in_units_and_begins_now(admin_client: Client) -> None:
    before = timezone.now()
    page = admin_client.post(f"{PRICES}add/", price_form(), follow=True).content.decode()
    price = Price.objects.get()
    assert (price.input_micros_per_mtok, price.output_micros_per_mtok) == (3_000_000, 15_000_000)
    assert price.cached_input_micros_per_mtok == 300_000
    assert before <= price.effective_from <= timezone.now()
    assert "A million tokens cost 3.000000 as input" in page
    assert "in the batch lane 0.750000 as input and 3.750000 as output" in page


def test_a_slip_by_a_thousand_is_warned_of(admin_client: Client) -> None:
    form = price_form(output_micros_per_mtok="15000")
    page = admin_client.post(f"{PRICES}add/", form, follow=True)
    said = {str(each): each.level_tag for each in page.context["messages"]}
    (price,) = (text for text in said if text.startswith("A million tokens cost"))
    assert said[price] == "warning"


def test_a_slip_by_a_million_is_refused(admin_client: Client) -> None:
    form = price_form(output_micros_per_mtok="15000000")
    page = admin_client.post(f"{PRICES}add/", form, follow=True).content.decode()
    assert "Ensure this value is less than or equal to" in page
    assert not Price.objects.exists()


def test_the_model_is_chosen_from_the_catalogue(admin_client: Client) -> None:
    page = admin_client.post(f"{PRICES}add/", price_form(model="tinny")).content.decode()
    assert "Select a valid choice. tinny is not one of" in page
    assert not Price.objects.exists()


def test_a_price_cannot_begin_in_the_past(admin_client: Client) -> None:
    form = price_form(effective_from_0="2026-01-01", effective_from_1="00:00:00")
    page = unescape(admin_client.post(f"{PRICES}add/", form).content.decode())
    assert "what was billed stays billed" in page
    assert not Price.objects.exists()


def test_a_version_that_has_begun_is_never_changed_or_deleted(admin_client: Client) -> None:
    price = make_price(effective_from=timezone.now() - timedelta(seconds=1))
    path = f"{PRICES}{price.pk}/"
    assert admin_client.post(f"{path}change/", price_form()).status_code == 403
    assert admin_client.post(f"{path}delete/", {"post": "yes"}).status_code == 403
    chosen = {"action": "delete_selected", "_selected_action": [price.pk], "post": "yes"}
    admin_client.post(PRICES, chosen)
    assert Price.objects.get().input_micros_per_mtok == 1
    assert "A million tokens cost" in admin_client.get(f"{path}change/").content.decode()


def test_a_version_that_is_still_to_come_can_be_changed_and_deleted(admin_client: Client) -> None:
    begin = timezone.now() + timedelta(days=1)
    path = f"{PRICES}{make_price(effective_from=begin).pk}/"
    form = price_form(effective_from_0=f"{begin:%Y-%m-%d}", effective_from_1=f"{begin:%H:%M:%S}")
    assert admin_client.post(f"{path}change/", form).status_code == 302
    assert Price.objects.get().input_micros_per_mtok == 3_000_000
    assert admin_client.post(f"{path}delete/", {"post": "yes"}).status_code == 302
    assert not Price.objects.exists()


def test_a_price_of_a_model_that_left_the_catalogue_is_still_shown(admin_client: Client) -> None:
    price = make_price(model="gone", effective_from=timezone.now() + timedelta(days=1))
    page = admin_client.get(f"{PRICES}{price.pk}/change/").content.decode()
    assert '<option value="gone" selected>' in page


def test_the_list_shows_units(admin_client: Client) -> None:
    make_price(output_micros_per_mtok=15_000_000)
    assert "15.000000" in admin_client.get(PRICES).content.decode()
