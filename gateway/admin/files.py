"""Files that teams have uploaded, and those that batches have written for them."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Q
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from gateway.admin.filters import TeamFilter, TimeFilter, uuid7_bounds
from gateway.admin.links import change_link
from gateway.admin.pages import RecordAdmin, RequestSearch, TeamColumn
from gateway.admin.theme import ChoiceFilter, when_shown
from jobs.models import Batch, StoredFile

_BATCHES_SHOWN = 20


class UploadedFilter(TimeFilter):
    """By when they were made; ids come in the order of time."""

    bounds = uuid7_bounds


@admin.register(StoredFile)
class StoredFileAdmin(TeamColumn, RequestSearch, RecordAdmin):
    """What is known of each file. Its content is its team's."""

    request_field = "pk"
    ordering = ["-id"]
    # As the indexes of one team's rows have it.
    team_order = ("-created_at", "-id")
    search_help_text = "The id of a file, such as file-… ."
    list_display = [
        *("created_at", "id", "filename", "purpose", "size_bytes", "lines", "team"),
        "expires_at",
    ]
    list_display_links = ["created_at", "id"]
    list_filter = [("purpose", ChoiceFilter), UploadedFilter, TeamFilter]
    fields = [
        *("id", "filename", "purpose", "size_bytes", "lines", "sha256", "team", "key_id"),
        *("created_at", "expires_at", "name", "batches"),
    ]
    export_columns = (
        *("id", "created_at", "team_id", "key_id", "filename", "purpose", "size_bytes"),
        *("lines", "expires_at"),
    )

    @admin.display(description="SHA-256")
    def sha256(self, file: StoredFile) -> str:
        """Return it in hexadecimal."""
        return bytes(file.digest).hex()

    @admin.display
    @when_shown
    def batches(self, file: StoredFile) -> SafeString | str:
        """Return the ways to the batches that read it, or wrote it."""
        names = ("input_file", "output_file", "error_file")
        either = Q(*((name, file.pk) for name in names), _connector=Q.OR)
        found = Batch.objects.filter(either)[:_BATCHES_SHOWN]
        return format_html_join(", ", "{}", ((change_link(batch),) for batch in found)) or "none"
