"""What workers do for pages. Each may run twice, at once, and die anywhere."""

from __future__ import annotations

from datetime import UTC, datetime

from celery import shared_task

from billing.models import Preview, PreviewKind


@shared_task
def previews_due(**_: object) -> None:
    """Tell workers which previews are to be computed; one whose worker died is computed again so."""
    for preview_id in Preview.objects.unfinished().order_by("pk").values_list("pk", flat=True):
        perform_preview.apply_async(kwargs={"preview_id": preview_id}, expires=30)  # it is sent again then


@shared_task
def perform_preview(*, preview_id: int, **_: object) -> None:
    """Compute one preview."""
    from portal.web import draft_documents, plan_previews, previews  # loads pages, which no other task needs

    previews.perform_preview(
        preview_id,
        compute={PreviewKind.DOCUMENTS: draft_documents.compute, PreviewKind.PLAN: plan_previews.compute},
        clock=lambda: datetime.now(UTC),
    )


@shared_task
def forget_old_previews(**_: object) -> None:
    """Delete previews that are old; run again, there are none left."""
    from portal.web import previews

    previews.forget_old(moment=datetime.now(UTC))
