"""Teams: what they may use, what they have spent, and credit for them."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from gateway.admin.money import UnitsField, units
from gateway.admin.pages import NudgingAdmin
from gateway.credit import adjust, top_up
from gateway.models import Team
from inference.errors import TandemError
from inference.transport.nudge import Topic
from jobs.models import Account, LedgerEntry
from jobs.reports import entries_of

if TYPE_CHECKING:
    _TeamForm = forms.ModelForm[Team]
else:
    _TeamForm = forms.ModelForm

_RECENT = 10
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
        choices=[
            (LedgerEntry.Kind.TOP_UP, "Top-up: credit that was paid for"),
            (LedgerEntry.Kind.ADJUSTMENT, "Adjustment: a correction, up or down"),
        ]
    )
    amount = UnitsField(help_text="In units. An adjustment may be negative.")
    description = forms.CharField(max_length=500, help_text="Why; shown to the team.")
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
class TeamAdmin(NudgingAdmin):
    """Teams. One that has keys cannot be deleted, because keys cannot."""

    topic = Topic.KEYS
    form = TeamForm
    list_display = ["name", "balance", "prepaid", "zero_data_retention", "created_at"]
    list_filter = ["prepaid", "zero_data_retention"]
    search_fields = ["name"]
    readonly_fields = ["created_at", "balance", "recent_entries"]
    fieldsets = [
        (None, {"fields": ["name", "zero_data_retention"]}),
        ("Limits", {"fields": _LIMITS, "description": "Empty: none. Its keys share them."}),
        (
            "Money",
            {"fields": ["prepaid", "daily_spend_cap_micros", "monthly_spend_cap_micros"]},
        ),
    ]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Show the account of a team that exists, and its entries to who may see them."""
        if obj is None:
            return self.fieldsets
        entries = ["recent_entries"] if request.user.has_perm("jobs.view_ledgerentry") else []
        account = ("Account", {"fields": ["balance", *entries, "created_at"]})
        return [*self.fieldsets, account]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Team]:
        """Read each team's balance with it."""
        balances = Account.objects.filter(pk=OuterRef("pk")).values("balance_micros")
        teams: QuerySet[Team] = super().get_queryset(request)
        return teams.annotate(balance_micros=Subquery(balances))

    @admin.display(description="balance, in units")
    def balance(self, team: Any) -> str:
        """Return what is left."""
        return units(team.balance_micros or 0)

    @admin.display(description="recent entries")
    def recent_entries(self, team: Team) -> SafeString:
        """Return the ledger's last entries as a table."""
        entries = entries_of(team.pk, _RECENT)
        if not entries:
            return SafeString("None.")
        rows = format_html_join(
            "",
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            (
                (
                    f"{entry.created_at:%Y-%m-%d %H:%M:%S}",
                    entry.get_kind_display(),
                    units(entry.amount_micros),
                    units(entry.balance_after_micros),
                    entry.description or entry.model,
                )
                for entry in entries
            ),
        )
        return format_html(
            "<table><thead><tr><th>Time</th><th>Kind</th><th>Amount</th><th>Balance after</th>"
            '<th>What for</th></tr></thead><tbody>{}</tbody></table><p><a href="{}?team={}">'
            "All entries</a></p>",
            rows,
            reverse("admin:jobs_ledgerentry_changelist"),
            team.pk,
        )

    def get_urls(self) -> list[URLPattern]:
        """Add the page that gives credit, ahead of those that take any path for an id."""
        credit = path(
            "<int:team_id>/credit/",
            self.admin_site.admin_view(self.credit_view),
            name="gateway_team_credit",
        )
        return [credit, *super().get_urls()]

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Offer the page that gives credit to those who may."""
        context = (extra_context or {}) | {"may_give_credit": _may_give_credit(request)}
        return super().change_view(request, object_id, form_url, context)

    def credit_view(self, request: HttpRequest, team_id: int) -> HttpResponse:
        """Book a top-up or an adjustment; it takes the permission to add ledger entries."""
        team = self.get_queryset(request).filter(pk=team_id).first()
        if team is None:
            raise Http404(f"there is no team {team_id}")
        if not (self.has_view_permission(request, team) and _may_give_credit(request)):
            raise PermissionDenied
        form = CreditForm(request.POST or None, initial={"nonce": uuid.uuid4()})
        if form.is_valid() and self._book(request, team, form):
            return redirect("admin:gateway_team_change", team.pk)
        context = self.admin_site.each_context(request) | {
            "title": f"Credit for {team}",
            "balance": self.balance(team),
            "form": form,
            "team": team,
            "opts": self.opts,
        }
        return TemplateResponse(request, "admin/gateway/team/credit.html", context)

    def _book(self, request: HttpRequest, team: Team, form: CreditForm) -> bool:
        try:
            entry = form.book(team, actor=request.user.get_username())
        except TandemError as error:
            form.add_error("amount", error.message)
            return False
        self.message_user(
            request,
            f"Entry {entry.number}: {entry.get_kind_display().lower()} of "
            f"{units(entry.amount_micros)}, balance {units(entry.balance_after_micros)}.",
            messages.SUCCESS,
        )
        return True


def _may_give_credit(request: HttpRequest) -> bool:
    return request.user.has_perm("jobs.add_ledgerentry")
