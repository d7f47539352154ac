"""Teams: what they may use, what they have spent, and credit for them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from gateway.admin.links import change_link, list_link, page_address
from gateway.admin.money import UnitsField, units
from gateway.admin.pages import ExportingAdmin, NudgingAdmin, row_of
from gateway.admin.screens.view import show
from gateway.admin.spending import spending_table
from gateway.admin.theme import Select, TextInput, YesNoFilter, button, when_shown
from gateway.credit import adjust, top_up
from gateway.models import ApiKey, Team
from inference.errors import TandemError
from inference.transport.nudge import Topic
from jobs.models import Account, Batch, LedgerEntry, RequestRecord
from jobs.reports import entries_of

if TYPE_CHECKING:
    _TeamForm = forms.ModelForm[Team]
else:
    _TeamForm = forms.ModelForm

_RECENT = 10
_SHOWN = ("spent", "balance", "recent_entries", "created_at", "activity")
_MAY_CHANGE_SPENDING = "gateway.change_spending"
_SPENDING = ("prepaid", "daily_spend_cap_micros", "monthly_spend_cap_micros")
_LIMITS = (
    "requests_per_minute",
    "input_tokens_per_minute",
    "output_tokens_per_minute",
    "max_concurrent",
)


class TeamForm(_TeamForm):
    """A team, its caps in units."""

    daily_spend_cap_micros = UnitsField(
        label="Daily spend cap", required=False, min_value=0, help_text="In units. Empty: none."
    )
    monthly_spend_cap_micros = UnitsField(
        label="Monthly spend cap", required=False, min_value=0, help_text="In units. Empty: none."
    )


class CreditForm(forms.Form):
    """One entry for the ledger. The nonce makes the same form count once, however often sent."""

    kind = forms.ChoiceField(
        widget=Select,
        choices=[
            (LedgerEntry.Kind.TOP_UP, "Top-up: credit that was paid for"),
            (LedgerEntry.Kind.ADJUSTMENT, "Adjustment: a correction, up or down"),
        ],
    )
    amount = UnitsField(help_text="In units. An adjustment may be negative.")
    description = forms.CharField(
        max_length=500, widget=TextInput, help_text="Why; shown to the team."
    )
    nonce = forms.UUIDField(widget=forms.HiddenInput)

    def book(self, team: Team, actor: str) -> LedgerEntry:
        """Make the entry. Raises `TandemError` for an amount that the ledger refuses."""
        data = self.cleaned_data
        book = top_up if data["kind"] == LedgerEntry.Kind.TOP_UP else adjust
        return book(
            team.pk,
            data["amount"],
            nonce=str(data["nonce"]),
            actor=actor,
            description=data["description"],
        )


@admin.register(Team)
class TeamAdmin(ExportingAdmin, NudgingAdmin):
    """Teams. One that has keys cannot be deleted, because keys cannot.

    What a team may spend is another matter than what it may do: each takes its own permission.
    """

    topic = Topic.KEYS
    form = TeamForm
    list_display = ["name", "balance", "prepaid", "zero_data_retention", "created_at"]
    list_filter = [("prepaid", YesNoFilter), ("zero_data_retention", YesNoFilter)]
    search_fields = ["name"]
    actions_detail = ["give_credit", "new_key"]
    fieldsets = [
        (None, {"fields": ["name", "zero_data_retention"]}),
        (
            "Limits",
            {"fields": _LIMITS, "description": "Its keys share them. Empty: no limit."},
        ),
        ("Money", {"fields": _SPENDING}),
    ]
    export_columns = (
        *("id", "name", "created_at", "zero_data_retention", *_LIMITS, *_SPENDING),
        "balance_micros",
    )

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Show the account of a team that exists, and what it spends to who may see entries."""
        if obj is None:
            return self.fieldsets
        if not request.user.has_perm("jobs.view_ledgerentry"):
            account = ("Account", {"fields": ["balance", "created_at", "activity"]})
            return [*self.fieldsets, account]
        spend = ("Spend", {"fields": ["spent", "balance", "activity"]})
        account = ("Account", {"fields": ["recent_entries", "created_at"]})
        return [spend, *self.fieldsets, account]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Keep what this operator may not change."""
        rest = ("name", "zero_data_retention", *_LIMITS)
        may_spend = request.user.has_perm(_MAY_CHANGE_SPENDING)
        may_change = request.user.has_perm("gateway.change_team" if obj else "gateway.add_team")
        return (*_SHOWN, *(() if may_spend else _SPENDING), *(() if may_change else rest))

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may change anything of it."""
        may_spend = request.user.has_perm(_MAY_CHANGE_SPENDING)
        return may_spend or super().has_change_permission(request, obj)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Team]:
        """Read each team's balance with it."""
        balances = Account.objects.filter(pk=OuterRef("pk")).values("balance_micros")
        teams: QuerySet[Team] = super().get_queryset(request)
        return teams.annotate(balance_micros=Subquery(balances))

    @admin.display(description="balance, in units")
    def balance(self, team: Any) -> str:
        """Return what is left."""
        return units(team.balance_micros or 0)

    @admin.display(description="related")
    def activity(self, team: Team) -> SafeString:
        """Return the ways to what it has done."""
        lists = ((RequestRecord, "requests"), (Batch, "batches"), (LedgerEntry, "ledger entries"))
        ways = ((list_link(model, name, team=team.pk),) for model, name in lists)
        keys = (list_link(ApiKey, "API keys", team__id__exact=team.pk),)
        return format_html_join(", ", "{}", (keys, *ways))

    @admin.display(description="spend and usage")
    @when_shown
    def spent(self, team: Team) -> SafeString:
        """Return what it has spent today, yesterday and lately."""
        return spending_table(team.pk, timezone.now().date())

    @admin.display(description="recent entries")
    @when_shown
    def recent_entries(self, team: Team) -> SafeString:
        """Return the ledger's last entries as a table."""
        return _entries_table(entries_of(team.pk, _RECENT), team)

    def get_urls(self) -> list[URLPattern]:
        """Add the page that gives credit, ahead of those that take any path for an id."""
        credit = path(
            "<int:team_id>/credit/",
            self.admin_site.admin_view(self.credit_view),
            name="gateway_team_credit",
        )
        return [credit, *super().get_urls()]

    @button("Give credit", permissions=["give_credit"], icon="add_card")
    def give_credit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Lead to the page that does."""
        return redirect("admin:gateway_team_credit", row_of(self, request, object_id).pk)

    def has_give_credit_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may add ledger entries."""
        return request.user.has_perm("jobs.add_ledgerentry")

    @button("New key", permissions=["new_key"], icon="key")
    def new_key(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Lead to the form that makes one, with the team filled in."""
        team = row_of(self, request, object_id)
        return redirect(f"{page_address(ApiKey, 'add')}?{urlencode({'team': team.pk})}")

    def has_new_key_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may add keys."""
        return request.user.has_perm("gateway.add_apikey")

    def credit_view(self, request: HttpRequest, team_id: int) -> HttpResponse:
        """Book a top-up or an adjustment; it takes the permission to add ledger entries."""
        team = self.get_queryset(request).filter(pk=team_id).first()
        if team is None:
            raise Http404(f"there is no team {team_id}")
        may_see = self.has_view_permission(request, team)
        if not (may_see and self.has_give_credit_permission(request)):
            raise PermissionDenied
        form = CreditForm(request.POST or None, initial={"nonce": uuid.uuid4()})
        if form.is_valid() and self._book(request, team, form):
            return redirect("admin:gateway_team_change", team.pk)
        return show(
            request,
            "admin/gateway/team/credit.html",
            f"Credit for {team}",
            balance=self.balance(team),
            form=form,
            team=team,
            original=team,
            opts=self.opts,
        )

    def _book(self, request: HttpRequest, team: Team, form: CreditForm) -> bool:
        try:
            entry = form.book(team, actor=request.user.get_username())
        except TandemError as error:
            form.add_error("amount", error.message)
            return False
        self.message_user(
            request,
            f"{team}: entry {entry.number}, {entry.get_kind_display().lower()} of "
            f"{units(entry.amount_micros)}, balance {units(entry.balance_after_micros)} units.",
            messages.SUCCESS,
        )
        return True


def _entries_table(entries: Sequence[LedgerEntry], team: Team) -> SafeString:
    if not entries:
        return SafeString("None.")
    rows = format_html_join(
        "",
        '<tr><td>{}</td><td>{}</td><td class="amount">{}</td><td class="amount">{}</td>'
        "<td>{}</td></tr>",
        (
            (
                change_link(entry, f"{entry.created_at:%Y-%m-%d %H:%M:%S}"),
                entry.get_kind_display(),
                units(entry.amount_micros),
                units(entry.balance_after_micros),
                entry.description or entry.model,
            )
            for entry in entries
        ),
    )
    return format_html(
        '<div class="sideways" tabindex="0" role="region" aria-label="Recent entries"><table>'
        '<thead><tr><th>Time, in UTC</th><th>Kind</th><th class="amount">Amount, in units</th>'
        '<th class="amount">Balance after</th><th>What for</th></tr></thead>'
        "<tbody>{}</tbody></table></div><p>{}</p>",
        rows,
        list_link(LedgerEntry, "All entries", team=team.pk),
    )
