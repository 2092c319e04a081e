"""What a close may lack usage of: what was not read yet, what nobody saw, what may have come late."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from billing.models import BillingPeriod
from clusters import incomplete_hours, watermark
from clusters.incomplete_hours import Sight
from clusters.models import IncompleteHour

SETTLED = timedelta(minutes=10)
"""After a period's end, before the pass begins that reads its last days again: what is late is there by then."""

LAST_DAY = timedelta(days=1)
"""Of a period: a pass over all of it that begins later is as good as one over the look-back."""

LISTED = 5  # hours that a sentence names


@dataclass(frozen=True, slots=True)
class Doubt:
    """What may be missing, as a sentence, and what to do about it, as the beginning of one."""

    fact: str
    remedy: str


def describe_lag(
    name: str, period: BillingPeriod, clusters: Sequence[tuple[str, datetime | None]], *, now: datetime
) -> Iterator[Doubt]:
    """Of clusters whose watermark lies before the period's end, or in the future; none for none."""
    late = []
    for cluster, through in clusters:
        ahead = watermark.ahead(cluster, through, moment=now)
        if ahead is None:
            late.append((cluster, through))
        else:
            yield Doubt(ahead.fact, ahead.remedy)
    if late:
        listed = ", ".join(
            f"{cluster} is complete through {f'{through:%Y-%m-%d %H:%M} UTC' if through else 'nothing yet'}"
            for cluster, through in late
        )
        yield Doubt(f"{name} ends {period.end:%Y-%m-%d %H:%M} UTC, but {listed}.", "import the rest")


def find_doubts(
    periods: Sequence[BillingPeriod], accounts: Mapping[int, set[int]]
) -> Mapping[int, list[Doubt]]:
    """By tenant, of whom each has one of the periods, what its clusters may hold that was not seen or not read."""
    if not periods:
        return {}
    sights = incomplete_hours.sights(
        {account for ids in accounts.values() for account in ids},
        since=min(period.start for period in periods),
        until=max(period.end for period in periods),
    )
    tenant_doubts = {}
    for period in periods:
        own = {
            sights[account].cluster: sights[account]
            for account in accounts.get(period.tenant_id, ())
            if account in sights
        }
        tenant_doubts[period.tenant_id] = [
            doubt for name in sorted(own) for doubt in _cluster_doubts(own[name], period)
        ]
    return tenant_doubts


def _cluster_doubts(sight: Sight, period: BillingPeriod) -> Iterator[Doubt]:
    hours = sight.poor_in(period.start, period.end)
    if hours:
        named = ", ".join(f"{_utc(hour)} ({hour.seen} % seen)" for hour in hours[:LISTED])
        more = f" and {len(hours) - LISTED} more" if len(hours) > LISTED else ""
        begin, end = hours[0].begins, hours[-1].begins + incomplete_hours.HOUR
        yield Doubt(
            f"{sight.cluster} was not watched all along in {'1 hour' if len(hours) == 1 else f'{len(hours)} hours'}, "
            f"so pods that came and went there are not known: {named}{more}.",
            f"read them with pull_usage {sight.cluster} --since {_iso(begin)} --until {_iso(end)} once Prometheus has "
            "the samples",
        )
    settled_at = period.end + SETTLED
    if sight.complete_through is None or sight.complete_through < period.end:
        return  # which is told already
    if sight.reread_at is not None and sight.reread_at >= settled_at:
        return
    if not incomplete_hours.was_read(
        sight.cluster, since=period.end - LAST_DAY, until=period.end, after=settled_at
    ):
        comes = (
            f"its connection is turned off, so ask for one with pull_usage {sight.cluster}"
            if sight.paused
            else "one comes each hour"
        )
        yield Doubt(
            f"What reached {sight.cluster}'s Prometheus late has not been read since the period's end.",
            f"close again after a full pass of it that begins after {settled_at:%Y-%m-%d %H:%M} UTC: {comes}",
        )


def _utc(hour: IncompleteHour) -> str:
    return f"{datetime.fromtimestamp(hour.begins, UTC):%Y-%m-%d %H:%M} UTC"


def _iso(second: int) -> str:
    return f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%SZ}"
