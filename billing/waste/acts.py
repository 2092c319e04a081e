"""What the acts on schedulers say of jobs that waste rules end, whoever began them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime

from billing.models import WasteClosed, WasteFinding, WasteState
from clusters.models import Act, ActKind, ActOutcome
from clusters.models.acts import OPEN


def load_acts(rows: Sequence[WasteFinding]) -> dict[int, list[Act]]:
    """By finding those that were carried out or begun for it, in order. One query; none where nothing is announced."""
    announced = [row for row in rows if row.state == WasteState.ANNOUNCED]
    by_source: dict[str, list[Act]] = defaultdict(list)
    if announced:
        acts = Act.objects.filter(
            cluster__name__in={row.cluster for row in announced},
            account__in={row.account for row in announced},
            kind__in=(ActKind.CANCEL, ActKind.REQUEUE),
            who__in=[row.source for row in announced],
            outcome__in=(ActOutcome.DONE, *OPEN),
        )
        for act in acts.order_by("pk"):
            by_source[act.who].append(act)
    return {row.pk: by_source[row.source] for row in rows}


def is_open(acts: Iterable[Act]) -> bool:
    """Whether one is under way, or not settled."""
    return any(act.outcome in OPEN for act in acts)


def record_end(row: WasteFinding, acts: Iterable[Act], *, moment: datetime) -> bool:
    """Have the row say that it was ended, where an act did so; whether one did. Within the caller's transaction."""
    act = next((act for act in acts if act.outcome == ActOutcome.DONE), None)
    if act is None:
        return False
    row.state = WasteState.REQUEUED if act.kind == ActKind.REQUEUE else WasteState.ENDED
    row.ended_at = row.closed_at = min((act.ended_at or act.intended_at).replace(microsecond=0), moment)
    row.closed_for, row.ran_until, row.error = WasteClosed.ENDED, None, ""
    row.save(update_fields=["state", "ended_at", "closed_at", "closed_for", "ran_until", "error"])
    return True
