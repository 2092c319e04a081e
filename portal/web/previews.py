"""What operators look at before it is done: requested by a page, computed by a worker, and shown for a day.

A preview writes what would be, reads it and takes it back. It locks what it is about and takes a hundred queries, which
no page should while somebody waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any, ClassVar, Final, TypeVar

import msgspec
import structlog
from django.db import DatabaseError, connection, transaction
from django.db.models import F
from django.utils.translation import gettext as _

from billing.models import Preview, PreviewKind
from clusters.month_file_fetches import FilesNeededError
from portal import patience
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
MOST_WAITING: Final = 5
"""Unfinished previews of one person: PDFs wait for the same worker."""
PATIENCE: Final = "20s"
"""How long a worker waits for a row that somebody else changes: as long as a page."""
REFRESH = "every 1s"

Progress = Callable[[int, int], None]
"""Gets how many parts are done, and of how many. Not within a transaction, which would take it back."""

Compute = Callable[[Mapping[str, Any], datetime, Progress], object]
"""Makes the result of the inputs as of a moment, of values that msgspec and `_encode` write."""


class PreviewError(CodedError):
    """There is no preview; the message says why and what to do."""

    sentences: ClassVar[Mapping[str, str]] = {
        "abandoned": "The preview was started several times and never ended: the worker’s log says why.",
        "busy": "A tenant of the preview is being closed or rated: try again in a minute.",
        "failed": "The preview failed: the worker’s log says why. Try again.",
        "other-release": "The preview is of another release of ClusterTab: preview it again.",
        "too-many": "{count} of your previews are still being computed: wait until one is ready, then try again.",
    }


T = TypeVar("T")

log = structlog.get_logger("portal.web.previews")


def request_preview(kind: PreviewKind, *, inputs: Mapping[str, Any], by: str, moment: datetime) -> Preview:
    """Have a worker compute it; the same one where the person waits for it and no worker has begun it.

    Raises PreviewError where MOST_WAITING of the person's wait.
    """
    replica.ask_primary()
    with transaction.atomic():
        locks.hold_name(f"previews of {by}")
        unfinished = Preview.objects.unfinished().filter(requested_by=by, requested_at__gt=moment - RETENTION)
        same = unfinished.filter(kind=kind, inputs=dict(inputs), started_at=None).first()
        if same is not None:
            return same
        if (count := unfinished.count()) >= MOST_WAITING:
            raise PreviewError("too-many", count=count)
        outbox.add("portal.web.tasks.previews_due")
        return Preview.objects.create(kind=kind, inputs=dict(inputs), requested_by=by, requested_at=moment)


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
        rows, moment = Preview.objects.filter(pk=preview_id), clock()
        rows.update(attempts=F("attempts") + 1, started_at=moment)

        def record_progress(done: int, total: int) -> None:
            rows.update(done=done, total=total)

        result, error = None, ""
        try:
            if row.attempts >= ATTEMPTS:
                raise PreviewError("abandoned")
            with _short_waits():
                computed = compute[PreviewKind(row.kind)](row.inputs, moment, record_progress)
            result = msgspec.json.encode(computed, enc_hook=_encode)
        except FilesNeededError:  # the task is done again once they are fetched
            rows.update(attempts=F("attempts") - 1)
            raise
        except CodedError as refusal:
            log.warning("preview refused", kind=row.kind, preview=preview_id, reason=str(refusal))
            error = sentence(refusal)
        except Exception as failure:
            log.exception("preview not computed", kind=row.kind, preview=preview_id)
            error = sentence(PreviewError("busy" if patience.ran_out(failure) else "failed"))
        rows.update(result=result, error=error, ended_at=clock())


@contextmanager
def _short_waits() -> Iterator[None]:
    """Somebody waits for it, and others wait for the same worker."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, false)", [PATIENCE])
    try:
        yield
    finally:
        with suppress(DatabaseError), connection.cursor() as cursor:  # gone with its connection otherwise
            cursor.execute("RESET lock_timeout")


def result_of(row: Preview, shape: type[T]) -> T | None:
    """What was computed, as this type; None where it is not there yet, or failed, which `row.error` says."""
    if row.result is None:
        return None
    try:
        return msgspec.json.decode(bytes(row.result), type=shape, dec_hook=_decode)
    except msgspec.MsgspecError:
        row.error = sentence(PreviewError("other-release"))
        return None


def progress_text(row: Preview, *, moment: datetime) -> str:
    """How far it is; "" once it has ended."""
    if row.ended_at is not None:
        return ""
    if row.started_at is not None:
        return _("Being computed.")
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
