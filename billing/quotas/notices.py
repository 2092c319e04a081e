"""Who is told of what a pass found: one e-mail a tenant, whatever many of its quotas it is about."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from billing.models import Notice, NoticeKind, QuotaCrossing, QuotaEvery, QuotaWatched
from billing.quotas import demands
from billing.quotas.status import plain_text, scope_text
from billing.quotas.thresholds import Crossed, Outcome


def write_notices(outcomes: Sequence[Outcome], *, moment: datetime) -> int:
    """Have what is new be told, and what is below again; one notice for each tenant and its recipients. How many.

    The notices are rows of the caller's transaction; the crossings that they tell of name them.
    """
    groups: dict[tuple[int, tuple[str, ...]], list[Outcome]] = defaultdict(list)
    for one in outcomes:
        if one.news or one.back_under:
            groups[one.quota.tenant_id, tuple(one.quota.recipients)].append(one)
    notices = []
    for (tenant, recipients), listed in sorted(groups.items()):
        newest = _newest_crossings(listed)
        first = min([*newest.values(), *(row.pk for one in listed for row in one.back_under)])
        notices.append(
            Notice(
                tenant_id=tenant,
                kind=NoticeKind.QUOTA,
                key=f"quota:{tenant}:{int(moment.timestamp())}:{first}",
                details={"members": list(recipients), "quotas": [_row(one) for one in listed]},
                created_at=moment,
                not_before=moment,
            )
        )
    Notice.objects.bulk_create(notices)
    for notice, (_, listed) in zip(notices, sorted(groups.items()), strict=True):
        crossings = QuotaCrossing.objects.filter(
            quota__in=[one.quota.pk for one in listed], at=moment, silent=False, notice=None
        )
        crossings.update(notice=notice)
    return len(notices)


def _newest_crossings(listed: Sequence[Outcome]) -> Mapping[int, int]:
    rows = QuotaCrossing.objects.filter(quota__in=[one.quota.pk for one in listed]).order_by("pk")
    return dict(rows.values_list("quota", "pk"))


def _row(one: Outcome) -> dict[str, Any]:
    """What the e-mail says of a quota, as values: it is written when it is sent."""
    quota, figure = one.quota, one.figure
    news = one.news
    is_endless = figure.window.edge is not None or quota.hours is not None
    return {
        "quota": quota.pk,
        "name": quota.name,
        "scope": scope_text(quota),
        "unit": quota.unit,
        "used": plain_text(figure.used, quota.unit),
        "amount": plain_text(one.amount, quota.unit),
        "forecast": None if figure.forecast is None else plain_text(figure.forecast, quota.unit),
        "reached": [
            _text(crossing, quota.unit) for crossing in news if crossing.watched == QuotaWatched.USED
        ],
        "foreseen": [
            _text(crossing, quota.unit) for crossing in news if crossing.watched == QuotaWatched.FORECAST
        ],
        "back_under": [row.threshold for row in one.back_under],
        "late": any(one.is_late(crossing) for crossing in news),
        "stale_since": figure.stale_since and figure.stale_since.isoformat(),
        "is_stale": any(crossing.watched == QuotaWatched.STALE for crossing in news),
        "ends_at": None if is_endless else figure.window.end.isoformat(),
        "resets": not is_endless and quota.every != QuotaEvery.TERM,
        "action": quota.action,
        "watch": quota.watch,
        "over": demands.is_over(one),
    }


def _text(crossing: Crossed, unit: str) -> str:
    """A share as it is written, what repeats as the level that it stands for."""
    return plain_text(crossing.level, unit) if crossing.threshold.startswith("+") else crossing.threshold
