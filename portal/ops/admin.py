"""Who changed what and when, before and after: to read, for ever."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from portal.admin import ReadOnly
from portal.core.audit.models import AuditEntry, Operation
from portal.core.audit.tracking import TRACKED
from portal.core.tenants.access import Right, rights_of

NOTHING: tuple[object, ...] = (None, "", [])


class OperationFilter(admin.SimpleListFilter):
    title = "what happened"
    parameter_name = "happened"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(value, str(label)) for value, label in Operation.choices]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(operation=self.value()) if self.value() else queryset


class TableFilter(admin.SimpleListFilter):
    title = "what"
    parameter_name = "of"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return sorted(((model.table, _noun(model.table)) for model in TRACKED), key=lambda pair: pair[1])

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(table=self.value()) if self.value() else queryset


@admin.register(AuditEntry)
class HistoryAdmin(ReadOnly[AuditEntry]):
    list_display = ("at", "author", "what", "operation", "change")
    list_display_links = None
    list_filter = (TableFilter, OperationFilter)
    ordering = ("-id",)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return Right.AUDIT in rights_of(request.user)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    @admin.display(description="who")
    def author(self, entry: AuditEntry) -> str:
        """Who acted, through what, and why; a worker's own doing names the task alone."""
        who = "" if entry.through == f"command {entry.who}" else entry.who
        return " – ".join(filter(None, (who, entry.through, entry.why))) or "nobody named"

    def what(self, entry: AuditEntry) -> str:
        return f"{_noun(entry.table)} {entry.key}"

    def change(self, entry: AuditEntry) -> SafeString:
        """Each field before and after; all fields of what is new or gone."""
        if entry.operation == Operation.UPDATE:
            pairs = [(name, f"{before} → {after}") for name, before, after in entry.changes]
        else:
            row = entry.after or entry.before or {}
            pairs = [(name, value) for name, value in row.items() if value not in NOTHING]
        return format_html_join("", "<div>{}: {}</div>", pairs)


def _noun(table: str) -> str:
    """The model's name, as the administration's other pages have it."""
    for model in apps.get_models():
        if model._meta.db_table == table:
            return model.__name__
    return table
