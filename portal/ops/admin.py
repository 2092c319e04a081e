"""Who changed what and when, before and after: to read, for ever."""

from __future__ import annotations

from typing import Any

import pghistory.core
from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import BigIntegerField, OuterRef, QuerySet, Subquery
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast
from django.http import HttpRequest
from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from pghistory.models import Events

from portal.admin import ReadOnly
from portal.tenants.models import User


class KindFilter(admin.SimpleListFilter):
    title = "what happened"
    parameter_name = "happened"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("insert", "new"), ("update", "changed"), ("delete", "gone")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(pgh_label=self.value()) if self.value() else queryset


class TableFilter(admin.SimpleListFilter):
    title = "what"
    parameter_name = "of"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        labels = (model._meta.label for model in pghistory.core.event_models())
        return sorted((label, _noun(label)) for label in labels)

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        offered = {label for label, _ in self.lookup_choices}
        return queryset.across(self.value()) if self.value() in offered else queryset


@admin.register(Events)
class HistoryAdmin(ReadOnly[Events]):
    list_display = ("pgh_created_at", "who", "what", "pgh_label", "change")
    list_display_links = None
    list_filter = (TableFilter, KindFilter)
    ordering = ("-pgh_created_at",)
    paginator = Paginator  # it is no table of its own

    def get_queryset(self, request: HttpRequest) -> QuerySet[Events]:
        user = Cast(KeyTextTransform("user", OuterRef("pgh_context")), BigIntegerField())
        person = User.objects.filter(pk=user).values("email")[:1]
        rows: QuerySet[Events] = Events.objects.annotate(person=Subquery(person)).order_by(*self.ordering)
        return rows

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.is_active and getattr(request.user, "is_superuser", False))

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def who(self, event: Any) -> str:
        """Whoever wrote it, by name: the actor, or who was signed in; a worker's own doing has neither."""
        context = event.pgh_context or {}
        told = (context.get("who") or event.person, context.get("why"))
        return " – ".join(filter(None, told)) or "nobody named"

    def what(self, event: Any) -> str:
        return f"{_noun(event.pgh_model)} {event.pgh_obj_id}"

    def change(self, event: Any) -> SafeString:
        """Each field before and after; all fields of what is new or gone."""
        if event.pgh_label == "update":
            pairs = [(name, f"{old} → {new}") for name, (old, new) in (event.pgh_diff or {}).items()]
        else:
            pairs = [(name, value) for name, value in event.pgh_data.items() if value not in (None, "", [])]
        return format_html_join("", "<div>{}: {}</div>", pairs)


def _noun(label: str) -> str:
    return label.partition(".")[2].removesuffix("Event")
