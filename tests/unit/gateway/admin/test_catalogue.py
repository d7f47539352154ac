"""The model catalogue in the admin."""

from __future__ import annotations

from html import unescape

import pytest
from django.test import Client

from gateway.admin.catalogue import CatalogueAdmin
from inference.models import Model
from tests.unit.gateway.admin.forms import MODELS, model_form

pytestmark = pytest.mark.django_db


def test_a_model_is_added_with_aliases_and_options(admin_client: Client) -> None:
    form = model_form(
        aliases="fast\n\n  claude-sonnet-4-5[1m]  \n", engine_options='{"dtype": "float32"}'
    )
    assert admin_client.post(f"{MODELS}add/", form).status_code == 302
    model = Model.objects.get()
    assert (model.id, model.aliases) == ("tiny", ["fast", "claude-sonnet-4-5[1m]"])
    assert model.engine_options == {"dtype": "float32"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"aliases": "fast\nfast, quick"}, "Line 2: “fast, quick” is not one name."),
        ({"aliases": '["fast"]'}, 'Line 1: “["fast"]” is not one name.'),
        ({"aliases": "fast\n\nFast"}, "Line 3: “Fast” is on line 1 already."),
        ({"engine_options": "[]"}, "Must be a JSON object"),
        ({"engine_options": "null"}, "Must be a JSON object"),
        ({"default_sampling": '{"top_x": 1}'}, "Numbers for temperature, top_p, top_k"),
        ({"default_sampling": '{"top_p": true}'}, "Numbers for temperature, top_p, top_k"),
        ({"weights": ""}, "A vLLM model needs the folder of its weights."),
        ({"aliases": "a\nQUICK"}, "Line 2: “QUICK” is an alias of the model other already."),
        ({"aliases": "other"}, "Line 1: “other” is the id of the model other already."),
        ({"id": "Quick"}, "“Quick” is an alias of the model other already."),
        ({"id": "OTHER"}, "“OTHER” is the id of the model other already."),
        ({"id": "with space"}, "Enter a valid value."),
        ({"context_tokens": 0}, "greater than or equal to 1"),
        ({"kv_offload_gib": -1}, "greater than or equal to 0"),
        ({"kv_offload_gib": 1, "kv_offload_dir": "kv"}, "Must be an absolute path."),
        ({"kv_offload_dir": "/srv/kv"}, "the folder through host memory"),
    ],
)
def test_a_model_that_would_not_work_is_refused_with_the_reason(
    admin_client: Client, changes: dict[str, object], message: str
) -> None:
    Model.objects.create(id="other", aliases=["quick"], context_tokens=1, enabled=False)
    page = admin_client.post(f"{MODELS}add/", model_form(**changes))
    assert page.status_code == 200
    assert message in unescape(page.content.decode())
    assert Model.objects.count() == 1


def test_the_form_shows_every_field_of_a_model() -> None:
    shown = {name for _, options in CatalogueAdmin.fieldsets for name in options["fields"]}
    fields = [*Model._meta.fields, *Model._meta.many_to_many]
    assert shown == {field.name for field in fields} - {"created_at"}


def test_a_model_s_own_names_are_not_taken_from_it(admin_client: Client) -> None:
    Model.objects.create(id="tiny", aliases=["fast"], weights="tiny", context_tokens=1)
    form = model_form(aliases="fast\nTiny")
    assert admin_client.post(f"{MODELS}tiny/change/", form).status_code == 302
    assert Model.objects.get().aliases == ["fast", "Tiny"]


def test_a_change_is_checked_against_the_other_models(admin_client: Client) -> None:
    Model.objects.create(id="tiny", weights="tiny", context_tokens=1)
    Model.objects.create(id="other", aliases=["quick"], context_tokens=1)
    page = admin_client.post(f"{MODELS}tiny/change/", model_form(aliases="quick"))
    assert "Line 1: “quick” is an alias of the model other already." in unescape(
        page.content.decode()
    )


def test_a_model_s_id_cannot_be_changed_into_a_second_model(admin_client: Client) -> None:
    Model.objects.create(id="tiny", weights="tiny", context_tokens=1)
    admin_client.post(f"{MODELS}tiny/change/", model_form(id="copy"))
    assert list(Model.objects.values_list("id", "context_tokens")) == [("tiny", 2048)]


def test_the_form_has_each_alias_on_a_line(admin_client: Client) -> None:
    Model.objects.create(id="tiny", aliases=["fast", "quick"], weights="tiny", context_tokens=1)
    page = admin_client.get(f"{MODELS}tiny/change/")
    assert page.context["adminform"].form["aliases"].value() == "fast\nquick"
    assert "fast\nquick</textarea>" in page.content.decode()


def test_what_was_typed_is_shown_again_beside_its_faults(admin_client: Client) -> None:
    typed = "fast\nfast quick"
    page = admin_client.post(f"{MODELS}add/", model_form(aliases=typed))
    assert page.context["adminform"].form["aliases"].value() == typed


@pytest.mark.parametrize("asked", ["SONNET", "tiny", "Small"])
def test_a_model_is_found_by_its_id_an_alias_or_its_name(admin_client: Client, asked: str) -> None:
    Model.objects.create(
        id="tiny", aliases=["claude-sonnet-4-5"], display_name="The small one", context_tokens=1
    )
    Model.objects.create(id="other", context_tokens=1)
    page = admin_client.get(MODELS, {"q": asked})
    assert [model.pk for model in page.context["cl"].result_list] == ["tiny"]
    assert "claude-sonnet-4-5" in page.content.decode()


def test_a_change_says_when_it_takes_effect(admin_client: Client) -> None:
    admin_client.post(f"{MODELS}add/", model_form())
    changed = admin_client.post(f"{MODELS}tiny/change/", model_form(capacity=2), follow=True)
    assert "An engine reads its entry when it starts" in changed.content.decode()
    # A browser sends these beside what is typed, for what was there before.
    before = {"initial-engine_options": "{}", "initial-default_sampling": "{}"}
    same = model_form(capacity=2, **before)
    again = admin_client.post(f"{MODELS}tiny/change/", same, follow=True)
    assert "An engine reads its entry" not in again.content.decode()


def test_a_model_s_page_calls_it_and_its_fields_what_they_are_called(admin_client: Client) -> None:
    admin_client.post(f"{MODELS}add/", model_form())
    page = admin_client.get(f"{MODELS}tiny/change/").content.decode()
    heading = page[page.index("<h1") : page.index("</h1>")]
    assert "tiny" in heading
    assert "Tiny" not in heading
    for label in ("Time to first token, target in ms", "Host memory, in GiB", "MCP servers"):
        assert label in page


def test_the_list_leads_to_a_model_by_its_id_and_its_name(admin_client: Client) -> None:
    Model.objects.create(id="tiny", display_name="Tiny", context_tokens=1)
    page = admin_client.get(MODELS).content.decode()
    assert page.count(f'<a href="{MODELS}tiny/change/"') == 2
