"""What standing reservations hold of quotas now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from fractions import Fraction

from billing.models import Quota
from billing.quotas.counters import UNSEEN
from billing.quotas.windows import Window
from billing.reservations.progress import Progress, left_of, load_progress
from billing.rules.quotas import Every


def load_reserved(
    quotas: Sequence[Quota],
    windows: Mapping[int, Window],
    *,
    moment: datetime,
    besides: int = 0,
    standing: Mapping[int, Progress] | None = None,
) -> dict[int, Fraction]:
    """By quota, in its unit, what standing reservations may still use until its window ends; none where none do.

    Without the reservation `besides`. One query; none where `standing` has those of all tenants.
    """
    if standing is None:
        tenants = {quota.tenant_id for quota in quotas}
        standing = load_progress(tenants, moment=moment, unseen=UNSEEN, besides=besides)
    by_quota = {quota.pk: quota for quota in quotas}
    reserved: dict[int, Fraction] = defaultdict(Fraction)
    for one in standing.values():
        for row in one.amounts:
            quota = by_quota.get(row.quota_id or 0)
            if quota is not None:
                within = seconds_within(quota, windows[quota.pk], moment)
                reserved[quota.pk] += left_of(row, one, within=within)
    return reserved


def seconds_within(quota: Quota, window: Window, moment: datetime) -> int:
    """Of what is used from the moment on, the seconds that the window counts."""
    if quota.every == Every.ROLLING:
        return (quota.hours or 1) * 3600
    return max(0, int((window.end - moment).total_seconds()))
