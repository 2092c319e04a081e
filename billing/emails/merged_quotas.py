"""What several notices say of the same budgets, as one: what took itself back meanwhile is left out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from billing.models import Notice, Quota, QuotaCrossing, QuotaPeriod, QuotaWatched

Row = Mapping[str, Any]


@dataclass(slots=True)
class _Merged:
    """Of one budget. Each thing that is said has the place of the notice that said it last."""

    newest: Row = field(default_factory=dict)
    reached: dict[str, int] = field(default_factory=dict)
    foreseen: dict[str, int] = field(default_factory=dict)
    back_under: dict[str, int] = field(default_factory=dict)
    stale: dict[str, int] = field(default_factory=dict)

    def add(self, row: Row, place: int) -> None:
        """What a later notice says. Back under what none of these had been sent of is no news."""
        self.newest = row
        for text in row["back_under"]:
            if self.reached.pop(text, None) is None:
                self.back_under[text] = place
        for text in row["reached"]:
            self.back_under.pop(text, None)
            self.reached[text] = place
        self.foreseen |= dict.fromkeys(row["foreseen"], place)
        if row["is_stale"]:
            self.stale["stale"] = place

    def places(self) -> set[int]:
        return {
            *self.reached.values(),
            *self.foreseen.values(),
            *self.back_under.values(),
            *self.stale.values(),
        }


def merge_quotas(notices: Sequence[Notice], *, moment: datetime) -> tuple[list[dict[str, Any]], set[int]]:
    """One row for each budget of which something still holds, with what is used of it by now; and the places of the
    notices that said it. The notices are of one tenant, the oldest first. Three queries."""
    merged: dict[int, _Merged] = defaultdict(_Merged)
    for place, notice in enumerate(notices):
        for row in notice.details["quotas"]:
            merged[row["quota"]].add(row, place)
    _leave_out(merged, notices, moment)
    left = {quota: one for quota, one in merged.items() if one.places()}
    used = _load_periods(left)
    rows = [_make_row(one, used.get(quota)) for quota, one in left.items()]
    return rows, {place for one in left.values() for place in one.places()}


def _leave_out(merged: Mapping[int, _Merged], notices: Sequence[Notice], moment: datetime) -> None:
    """What does not hold any more: it is below again, its budget or period is over, or its cluster is read again."""
    crossings = QuotaCrossing.objects.filter(notice__in=[notice.pk for notice in notices])
    every: dict[tuple[int, str], set[str]] = defaultdict(set)
    uncleared: dict[tuple[int, str], set[str]] = defaultdict(set)
    for quota, watched, text, cleared in crossings.values_list("quota", "watched", "threshold", "cleared_at"):
        every[quota, watched].add(text)
        if cleared is None:
            uncleared[quota, watched].add(text)
    current = set(Quota.objects.in_force().filter(pk__in=list(merged)).values_list("pk", flat=True))
    for quota, one in merged.items():
        ends_at = one.newest["ends_at"]
        is_over = quota not in current or (ends_at and datetime.fromisoformat(ends_at) <= moment)
        if is_over:
            one.reached, one.foreseen, one.back_under, one.stale = {}, {}, {}, {}
        for steps, watched in ((one.reached, QuotaWatched.USED), (one.foreseen, QuotaWatched.FORECAST)):
            for text in _gone(steps, every[quota, watched], uncleared[quota, watched]):
                del steps[text]
        if not uncleared[quota, QuotaWatched.STALE]:
            one.stale = {}


def _gone(steps: Iterable[str], every: set[str], uncleared: set[str]) -> list[str]:
    """A step of what repeats is written as its level, so it holds while any step does."""
    repeats = any(text.startswith("+") for text in uncleared)
    return [text for text in steps if text not in uncleared and (text in every or not repeats)]


def _load_periods(quotas: Iterable[int]) -> Mapping[int, QuotaPeriod]:
    """The newest period of each, as it was last looked at."""
    rows = QuotaPeriod.objects.filter(quota__in=list(quotas)).order_by("start")
    return {row.quota_id: row for row in rows}


def _make_row(one: _Merged, period: QuotaPeriod | None) -> dict[str, Any]:
    row = dict(one.newest) | {
        "reached": list(one.reached),
        "foreseen": list(one.foreseen),
        "back_under": list(one.back_under),
        "is_stale": bool(one.stale),
    }
    if not one.stale:
        row["stale_since"] = None
    if period is not None:
        row["used"] = f"{period.used.normalize():f}"
        row["amount"] = f"{period.available.normalize():f}"
        row["over"] = bool(row["over"]) and period.used >= period.available
    return row
