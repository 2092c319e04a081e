"""What standing reservations hold of quotas now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from fractions import Fraction

from billing.models import Quota, ReservedAmount
from billing.quotas.counters import UNSEEN
from billing.quotas.windows import Window
from billing.reservations.progress import left_of, load_progress
from billing.rules.quotas import Every


def load_reserved(
    quotas: Sequence[Quota], windows: Mapping[int, Window], *, moment: datetime, besides: int = 0
) -> dict[int, Fraction]:
    """By quota, in its unit, what standing reservations may still use until its window ends; none where none do.

    Without the reservation `besides`. Two queries; one where nothing is reserved.
    """
    progress = load_progress(
        (quota.tenant_id for quota in quotas), moment=moment, unseen=UNSEEN, besides=besides
    )
    if not progress:
        return {}
    by_quota = {quota.pk: quota for quota in quotas}
    reserved: dict[int, Fraction] = defaultdict(Fraction)
    for row in ReservedAmount.objects.filter(quota__in=by_quota, reservation__in=progress):
        quota = by_quota[row.quota_id or 0]
        within = seconds_within(quota, windows[quota.pk], moment)
        reserved[quota.pk] += left_of(row, progress[row.reservation_id], within=within)
    return reserved


def seconds_within(quota: Quota, window: Window, moment: datetime) -> int:
    """Of what is used from the moment on, the seconds that the window counts."""
    if quota.every == Every.ROLLING:
        return (quota.hours or 1) * 3600
    return max(0, int((window.end - moment).total_seconds()))
