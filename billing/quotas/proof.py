"""That the counters of quotas are the rated usage in their scopes, and that reservations hold what is left."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from math import ceil

from django.db import connection

from billing.models import Quota, QuotaPeriod, ReservedAmount, WalletBooking, WalletHold
from billing.proof.checks import Check
from billing.quotas import counters
from billing.quotas.counters import Key, Span, Wants, scope_of
from billing.quotas.quotas import list_quotas
from billing.quotas.windows import Calendar, load_calendars
from billing.reservations.progress import left_of, load_progress
from billing.reservations.progress import sql as reservations_sql
from billing.rules.quotas import Every
from billing.wallets.reservation_holds import hold_key
from clusters import absent_records

SHOWN = 10
ROUNDED = Decimal("1e-12")
"""To so much is rounded what a pass writes down."""


def prove_quotas(*, moment: datetime) -> Check:
    """Of each quota in force, its present period or window and the period before: what its days count is what rated
    rows of its jobs add up to. All days before are days of the proof that daily usage equals rated usage. Not those
    with jobs whose rows stand in files alone.

    The days are read as the figure reads them, the rows job by job; and pools lend what is used beyond own amounts.
    Names up to ten places where the two differ.
    """
    quotas = list(list_quotas())
    in_files = absent_records.list_all()
    calendars = load_calendars(quotas)
    wants, numbers, rows = Wants(), [], []
    for quota in quotas:
        for span in _spans(quota, calendars[quota.tenant_id], moment):
            since, until = int(span.start.timestamp()), int(span.end.timestamp())
            if in_files and absent_records.list_between(since, until):
                continue
            scope = scope_of(quota)
            rows.append(quota)
            numbers.append(wants.add(span, scope))
            wants.add_edge(counters.Edge(quota.tenant_id, since, until, scope))
    counts, edges = wants.count(moment)
    broken = []
    for quota, number, by_period in zip(rows, numbers, edges, strict=True):
        rated: dict[Key, Fraction] = defaultdict(Fraction)
        for count in by_period.values():
            for key, seconds in count.rated.items():
                rated[key] += seconds
        broken += _differences(quota, counts[number].rated, rated)
    broken += _loan_differences([quota for quota in quotas if quota.lends])
    return Check("quotas count the rated usage in their scope", broken[:SHOWN])


def _spans(quota: Quota, calendar: Calendar, moment: datetime) -> Iterator[Span]:
    """The days that are proved of it; of a rolling window those that are counted whole."""
    window = calendar.window(quota, moment)
    if quota.every == Every.ROLLING:
        stretches = calendar.days.between(window.first, window.end_day)
        if stretches:
            start, end = stretches[0][0], stretches[-1][1]
            yield Span(quota.tenant_id, window.first, window.end_day, start, end)
        return
    yield Span(quota.tenant_id, window.first, window.end_day, window.start, window.end)
    if quota.every != Every.TERM and window.start > quota.counts_since:
        before = calendar.window(quota, window.start - timedelta(seconds=1))
        yield Span(quota.tenant_id, before.first, before.end_day, before.start, before.end)


def _loan_differences(pools: Sequence[Quota]) -> list[str]:
    """Of each pool, as it was looked at last: it has lent what those who borrow from it used beyond their own then."""
    broken = []
    for pool in pools:
        period = QuotaPeriod.objects.filter(quota=pool).order_by("-start").first()
        if period is None:
            continue
        members = QuotaPeriod.objects.filter(
            quota__borrows_from=pool, evaluated_at=period.evaluated_at
        ).select_related("quota")
        own = members if pool.every == Every.ROLLING else members.filter(start=period.start)
        lent = sum((max(Decimal(0), row.used - row.available) for row in own), Decimal(0))
        if abs(lent - period.used) > ROUNDED * (len(own) + 1):
            broken.append(
                f"{pool.tenant.slug}/{pool.name}: {period.used.normalize():f} lent, {lent.normalize():f} "
                "used beyond their own by those who borrow"
            )
    return broken


def _differences(quota: Quota, counted: dict[Key, Fraction], rated: dict[Key, Fraction]) -> list[str]:
    return [
        f"{quota.tenant.slug}/{quota.name}, {key.resource} of project {key.name or '(none)'}: "
        f"{counted.get(key, Fraction(0))} s counted, {rated.get(key, Fraction(0))} s rated"
        for key in sorted({*counted, *rated}, key=str)
        if counted.get(key, Fraction(0)) != rated.get(key, Fraction(0))
    ]


def prove_reservations(*, moment: datetime) -> Check:
    """Reserved is what standing reservations leave, and nothing else is: of quotas by the seconds that are rated of
    their jobs, of wallets by the holds that stand. Names up to ten places where the two differ.
    """
    broken = []
    with connection.cursor() as cursor:
        cursor.execute(reservations_sql.RATED)
        for reservation, job, recorded, rated in cursor.fetchall():
            if recorded != rated:
                broken.append(
                    f"reservation {reservation}, job {job}: {recorded} GPU-seconds taken off, {rated} rated"
                )
    broken += _hold_differences(moment)
    return Check("reservations hold what their jobs have left", broken[:SHOWN])


def _hold_differences(moment: datetime) -> list[str]:
    """Of each wallet the holds under keys of reservations, and what its standing reservations leave of it."""
    rows = list(ReservedAmount.objects.filter(wallet__isnull=False, reservation__released_at=None))
    due = {*WalletBooking.objects.filter(due=True).values_list("tenant", flat=True)}
    progress = load_progress({row.tenant_id for row in rows}, moment=moment, unseen=0)
    holds = {
        (hold.wallet_id, hold.key): hold
        for hold in WalletHold.objects.filter(key__startswith=hold_key(""), released_at=None)
    }
    broken = []
    for row in rows:
        hold = holds.pop((row.wallet_id or 0, hold_key(row.reservation_id)), None)
        one = progress.get(row.reservation_id)
        if one is None or row.tenant_id in due:
            continue  # it expires with the next pass, or something is rated that is not booked yet
        left, amount = ceil(left_of(row, one, within=None, rated_only=True)), hold.amount if hold else 0
        if left != amount:
            broken.append(
                f"reservation {row.reservation_id}: {left} left of wallet {row.wallet_id}, {amount} held"
            )
    return broken + [f"wallet {wallet}: {key} is held and stands no more" for wallet, key in holds]
