"""The seals over the audit trail, to be read."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from gateway.admin.pages import RecordAdmin
from jobs.models import AuditSeal


@admin.register(AuditSeal)
class AuditSealAdmin(RecordAdmin):
    """Each link of the chain; `manage.py verify_audit` checks that it holds."""

    list_display = ["number", "created_at", "rows", "chain", "pruned_at"]
    fields = ["number", "created_at", "rows", "over_rows", "chain", "pruned_at"]
    export_columns = ("number", "created_at", "rows", "pruned_at")

    def get_queryset(self, request: HttpRequest) -> QuerySet[AuditSeal]:
        """Leave out the digests of the rows one by one, which are long."""
        seals: QuerySet[AuditSeal] = super().get_queryset(request)
        return seals.defer("leaves")

    @admin.display(description="digest of the rows")
    def over_rows(self, seal: AuditSeal) -> str:
        """Return it in hexadecimal."""
        return bytes(seal.rows_digest).hex()

    @admin.display(description="digest of the chain")
    def chain(self, seal: AuditSeal) -> str:
        """Return it in hexadecimal."""
        return bytes(seal.digest).hex()
