from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest

from portal.core.outbox.models import OutboxMessage


@admin.register(OutboxMessage)
class OutboxMessageAdmin(admin.ModelAdmin[OutboxMessage]):
    """What is on its way, and why something is late. Nothing here is written by hand."""

    list_display = ("id", "task", "created_at", "available_at", "attempts", "done_at", "last_error")
    list_filter = ("task", ("done_at", admin.EmptyFieldListFilter))
    ordering = ("-id",)
    actions = ("retry_now",)
    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: OutboxMessage | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: OutboxMessage | None = None) -> bool:
        return False

    def has_retry_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("outbox.change_outboxmessage")

    @admin.action(description="Retry the selected messages now", permissions=["retry"])
    def retry_now(self, request: HttpRequest, queryset: QuerySet[OutboxMessage]) -> None:
        queryset.filter(done_at=None).update(available_at=Now())
