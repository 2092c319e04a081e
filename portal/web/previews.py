"""What operators look at before it is done: requested by a page, computed by a worker, and shown for a day.

A preview writes what would be, reads it and takes it back. It locks what it is about and takes a hundred queries, which
no page should while somebody waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any, Final, TypeVar

import msgspec
import structlog
from django.db import transaction
from django.db.models import F
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.models import Preview, PreviewKind
from portal.core import locks, replica
from portal.core.locks import Work
from portal.core.outbox import outbox
from portal.errors import CodedError
from portal.sentences import sentence

ATTEMPTS: Final = 3
"""Workers that may die over a preview before it is given up."""
RETENTION: Final = timedelta(days=1)
"""After that a preview is deleted: what it shows is old, and has names and addresses of tenants."""
LATE: Final = timedelta(seconds=20)
"""After that a page says that no worker has taken it up."""
REFRESH = "every 1s"
FAILED = gettext_noop("It could not be computed: the worker’s log says why. Try again.")
GIVEN_UP = gettext_noop("Its computing was begun several times and never ended: the worker’s log says why.")
OTHER_RELEASE = gettext_noop("It was computed by another release of ClusterTab: preview it again.")

Progress = Callable[[int, int], None]
"""Gets how many parts are done, and of how many. Not within a transaction, which would take it back."""

Compute = Callable[[Mapping[str, Any], datetime, Progress], object]
"""Makes the result of the inputs as of a moment, of values that msgspec and `_encode` write."""

T = TypeVar("T")

log = structlog.get_logger("portal.web.previews")


def request_preview(kind: PreviewKind, *, inputs: Mapping[str, Any], by: str, moment: datetime) -> Preview:
    """Have a worker compute it; the same one where the person waits for it already."""
    replica.ask_primary()
    with transaction.atomic():
        unfinished = Preview.objects.unfinished().filter(requested_at__gt=moment - RETENTION)
        row, is_new = unfinished.get_or_create(
            kind=kind, inputs=dict(inputs), requested_by=by, defaults={"requested_at": moment}
        )
        if is_new:
            outbox.add("portal.web.tasks.previews_due")
    return row


def find_preview(kind: PreviewKind, preview_id: int, **inputs: str) -> Preview | None:
    """One that has these inputs, if it is not deleted yet. One query."""
    filters = {f"inputs__{name}": value for name, value in inputs.items()}
    row = Preview.objects.filter(pk=preview_id, kind=kind, **filters).first()
    if row is None:
        replica.ask_primary()
    return row


def perform_preview(
    preview_id: int, *, compute: Mapping[PreviewKind, Compute], clock: Callable[[], datetime]
) -> None:
    """Compute it, unless it is done or another worker is at it; begun anew where one died."""
    with locks.alone(Work.PREVIEWING, preview_id) as ours:
        row = Preview.objects.unfinished().filter(pk=preview_id).first() if ours else None
        if row is None:
            return
        rows = Preview.objects.filter(pk=preview_id)
        rows.update(attempts=F("attempts") + 1, started_at=clock())

        def record_progress(done: int, total: int) -> None:
            rows.update(done=done, total=total)

        result, error = None, ""
        if row.attempts >= ATTEMPTS:
            error = _(GIVEN_UP)
        else:
            try:
                computed = compute[PreviewKind(row.kind)](row.inputs, clock(), record_progress)
                result = msgspec.json.encode(computed, enc_hook=_encode)
            except CodedError as refusal:
                error = sentence(refusal)
            except Exception:
                log.exception("preview not computed", kind=row.kind, preview=preview_id)
                error = _(FAILED)
        rows.update(result=result, error=error, ended_at=clock())


def result_of(row: Preview, kind: type[T]) -> T | None:
    """What was computed, as this type; None where it is not there yet, or failed, which `row.error` says."""
    if row.result is None:
        return None
    try:
        return msgspec.json.decode(bytes(row.result), type=kind, dec_hook=_decode)
    except msgspec.MsgspecError:
        row.error = _(OTHER_RELEASE)
        return None


def progress_text(row: Preview, *, moment: datetime) -> str:
    """How far it is; "" once it has ended."""
    if row.ended_at is not None:
        return ""
    if row.started_at is not None:
        return _("A worker computes it.")
    if moment - row.requested_at < LATE:
        return _("Waiting for a worker.")
    return _("No worker has taken it up yet: see whether workers run.")


def forget_old(*, moment: datetime) -> int:
    """Delete those that were requested longer ago than RETENTION."""
    return Preview.objects.filter(requested_at__lte=moment - RETENTION).delete()[0]


def _encode(value: object) -> str:
    if isinstance(value, Fraction):
        return str(value)
    raise NotImplementedError(type(value))


def _decode(kind: type, value: Any) -> Any:
    if kind is Fraction:
        return Fraction(value)
    raise NotImplementedError(kind)
