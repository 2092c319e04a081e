"""The one figure: how much of each quota is used now. Pages, the API, notices and commands read this one.

Used is what rating has counted on the days of the window, kept by its own deltas, and what running jobs have used since
they were last rated, at their present price.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from fractions import Fraction

from billing.catalog import terms
from billing.models import BillingPeriod, Quota, QuotaMeasure
from billing.quotas import carry_over, counters, freshness, pools, reservations, valued_use
from billing.quotas.counters import EVERYTHING, Count, Edge, Span, Wants, scope_of
from billing.quotas.credits import load_credits
from billing.quotas.debts import load_debts
from billing.quotas.pools import Loan
from billing.quotas.valued_use import Lines, PriceTag
from billing.quotas.windows import DAY, Calendar, Window, days_of, load_calendars
from billing.rules.forecast import FEWEST, LAST
from billing.rules.money import Money
from billing.rules.quotas import Every


@dataclass(frozen=True, slots=True)
class Figure:
    """How a quota stands at a moment, exact, in whole units of its measure.

    `used` = `rated` + `counted_on` − `credited`, of the quota's amount and what is `carried` from the period before,
    below zero what that one overdrew. `speed` is what running jobs use in a second, `forecast` what the
    window will come to, None where it is too early or has no end; `as_of` up to when all of its clusters are read.
    """

    window: Window
    rated: Fraction
    counted_on: Fraction
    credited: Fraction
    speed: Fraction
    forecast: Fraction | None
    as_of: datetime | None
    stale_since: datetime | None  # up to when the cluster is read that has not been for long
    carried: Fraction = Fraction(0)
    reserved: Fraction = Fraction(0)  # of what is left, what reservations hold of the window
    # Of a quota that borrows: so much more it may use of its pool, of that what reservations of others hold, and what
    # all who borrow from it use in a second.
    borrowable: Fraction = Fraction(0)
    promised: Fraction = Fraction(0)
    pool_speed: Fraction = Fraction(0)
    loans: tuple[Loan, ...] = ()  # of a pool, in order of names

    @property
    def used(self) -> Fraction:
        used = self.rated + self.counted_on if self.counted_on else self.rated
        return used - self.credited if self.credited else used

    def amount(self, quota: Quota) -> Fraction:
        """What may be used in the window, of the quota's own."""
        amount = Fraction(quota.amount)
        return max(amount + self.carried, Fraction(0)) if self.carried else amount

    def limit(self, quota: Quota) -> Fraction:
        """The same with what it may borrow: all of that is used before the quota acts."""
        return self.amount(quota) + self.borrowable if self.borrowable else self.amount(quota)

    def is_overdrawn(self, quota: Quota) -> bool:
        """Whether the period before left nothing of this one."""
        return self.carried < 0 and not self.amount(quota)


@dataclass(slots=True)
class _Piece:
    """A part of a quota's window that lies in one billing period, or in none that is kept."""

    want: int
    place: Range | None
    is_whole: bool = False  # all of the period is in the window
    edge: int | None = None  # instead of the want: of count_edges


@dataclass(frozen=True, slots=True)
class Range:
    """A billing period, or a stretch that none is kept of: in each, use at one price is one line."""

    span: Span
    period: BillingPeriod | None


@dataclass(slots=True)
class _Plan:
    """What is queried for all quotas at once."""

    wants: Wants = field(default_factory=Wants)
    edges: list[Edge] = field(default_factory=list)
    lines: dict[Range, int] = field(default_factory=dict)  # the want of all of a range's use
    pieces: dict[int, list[_Piece]] = field(default_factory=dict)  # by view
    billed: set[int] = field(default_factory=set)  # tenants of whom what is billed is counted


View = tuple[Quota, Window]
"""A quota in one of its periods."""


def load_figures(
    quotas: Sequence[Quota], *, moment: datetime, forecasts: bool = True, besides: int = 0
) -> dict[int, Figure]:
    """By quota how it stands, with its tenant and project loaded. A fixed number of queries, however many they are;
    for tenants whose plans have more than prices of single units those of a close besides. `besides`: a reservation
    that is left out."""
    keys = [quota.pk for quota in quotas]
    quotas = [*quotas, *pools.load_relatives(quotas)]
    calendars = load_calendars(quotas, moment=moment)
    windows = {quota.pk: calendars[quota.tenant_id].window(quota, moment) for quota in quotas}
    # Before what is used: of a pull between the two, seconds are counted twice for a moment, and never lost.
    reserved = reservations.load_reserved(quotas, windows, moment=moment, besides=besides)
    missing = load_debts(quotas)
    views = {
        quota.pk: (quota, windows[quota.pk])
        for quota in quotas
        if quota.wallet_id is None and not quota.lends
    }
    past = carry_over.list_past(quotas, windows=windows, calendars=calendars)
    views |= {key: (chain.quota, chain.windows[turn]) for key, (chain, turn) in past.items()}
    results = load_views(views, calendars, moment, forecasts=forecasts) if views else {}
    carried = carry_over.carried_by_quota(past, {key: results.pop(key).used for key in past})
    nothing = Fraction(0)
    missing |= {quota.pk: nothing for quota in quotas if quota.lends}
    for pk, lack in missing.items():
        results[pk] = Figure(windows[pk], lack, nothing, nothing, nothing, None, None, None)
    results |= {pk: replace(results[pk], carried=value) for pk, value in carried.items()}
    results |= {pk: replace(results[pk], reserved=held) for pk, held in reserved.items()}
    results |= pools.share(quotas, results)
    return {pk: results[pk] for pk in keys}


def load_figures_until(wanted: Sequence[tuple[Quota, Window, datetime]]) -> dict[int, Fraction]:
    """By quota what is rated by now of the days of its window before that of a moment."""
    calendars = load_calendars([quota for quota, _, _ in wanted])
    views = {}
    for quota, window, moment in wanted:
        days = calendars[quota.tenant_id].days
        end_day = max(window.first, days.day_of(moment))
        end = max(window.start + timedelta(seconds=1), days.between(end_day, None)[0][0])
        views[quota.pk] = quota, replace(window, end_day=end_day, end=end)
    moment = max(moment for _, _, moment in wanted)
    results = load_views(views, calendars, moment, forecasts=False)
    return {pk: figure.rated for pk, figure in results.items()}


def plain_value(
    quota: Quota, prices: Mapping[int, PriceTag], seconds: Mapping[counters.Key, Fraction]
) -> Fraction:
    """What seconds of use are worth to the quota without tiers and allowances."""
    return _Value(quota, prices).plain(seconds)


def load_views(
    views: Mapping[int, View], calendars: Mapping[int, Calendar], moment: datetime, *, forecasts: bool
) -> dict[int, Figure]:
    """By key how each quota stands in its window, without what is carried, reserved or lent."""
    plan = _Plan()
    for key, (quota, window) in views.items():
        if quota.counts_corrections:
            plan.billed.add(quota.tenant_id)
        plan.pieces[key] = list(_pieces(plan, quota, window, calendars[quota.tenant_id]))
    counts = plan.wants.count(moment)
    edges = counters.count_edges(plan.edges)
    keys = {key.price for count in counts for key in count.keys}
    keys |= {key.price for edge in edges for count in edge.values() for key in count.keys}
    prices = valued_use.load_price_tags(keys)
    valued = _value_lines(plan, counts, prices)
    credited = load_credits(views)
    marks = freshness.load_marks([quota for quota, _ in views.values()], moment)
    values = {
        key: _Value(quota, prices).sum(plan.pieces[key], counts, edges, valued, window)
        for key, (quota, window) in views.items()
    }
    expected = _forecasts(views, calendars, values, prices, moment) if forecasts and views else {}
    return {
        key: Figure(
            window,
            values[key].rated,
            values[key].grown,
            credited.get(key, Fraction(0)),
            values[key].speed,
            expected.get(key),
            *freshness.read_through(quota, marks.get(quota.tenant_id, {}), moment),
        )
        for key, (quota, window) in views.items()
    }


def _pieces(plan: _Plan, quota: Quota, window: Window, calendar: Calendar) -> Iterable[_Piece]:
    scope, tenant = scope_of(quota), quota.tenant_id
    whole = Span(tenant, window.first, window.end_day, window.start, window.end)
    if window.edge is not None:
        plan.edges.append(Edge(tenant, *window.edge, scope))
    if quota.measure != QuotaMeasure.MONEY:
        yield _Piece(plan.wants.add(whole, scope), None, edge=len(plan.edges) - 1 if window.edge else None)
        return
    edge = len(plan.edges) - 1 if window.edge is not None else None
    for place in _ranges(tenant, window, calendar):
        plan.lines.setdefault(place, plan.wants.add(place.span, EVERYTHING))
        first = max(place.span.first, window.first)
        span = Span(
            tenant,
            first,
            max(first, min(place.span.end_day, window.end_day)),
            max(place.span.start, window.start),
            min(place.span.end, window.end),
        )
        is_whole = window.edge is None and window.start <= place.span.start and place.span.end <= window.end
        yield _Piece(plan.wants.add(span, scope), place, is_whole, edge)


def _ranges(tenant: int, window: Window, calendar: Calendar) -> Iterable[Range]:
    """The billing periods that the window touches, and where none is kept what lies between them."""
    at, day = window.start, calendar.days.day_of(window.start)
    for row in calendar.periods:
        if row.end <= window.start or row.start >= window.end:
            continue
        if at < row.start:
            yield Range(Span(tenant, day, days_of(row)[0], at, row.start), None)
        yield Range(Span(tenant, *days_of(row), row.start, row.end), row)
        at, day = row.end, days_of(row)[1]
    if at < window.end:
        yield Range(Span(tenant, day, max(day, window.end_day), at, window.end), None)


def _value_lines(
    plan: _Plan, counts: Sequence[Count], prices: Mapping[int, PriceTag]
) -> dict[Range, tuple[Lines, Lines]]:
    queried = plan.billed | terms.list_by_statement(place.span.tenant for place in plan.lines)
    periods = [
        (place.period, counts[want])
        for place, want in plan.lines.items()
        if place.period is not None and place.span.tenant in queried
    ]
    charged = valued_use.load_charges(periods, prices) if periods else {}
    return {
        place: valued_use.make_lines(
            counts[want], prices, charged.get(place.period.pk) if place.period else None
        )
        for place, want in plan.lines.items()
    }


@dataclass(slots=True)
class _Sum:
    """In units of the measure: as rated, what has grown since, and in a second; `plain` at first units' prices."""

    rated: Fraction = Fraction(0)
    grown: Fraction = Fraction(0)
    speed: Fraction = Fraction(0)
    plain: Fraction = Fraction(0)
    use: Fraction = Fraction(0)  # of rated and grown, what follows use


@dataclass(frozen=True, slots=True)
class _Value:
    """What seconds of use are worth to a quota."""

    quota: Quota
    prices: Mapping[int, PriceTag]

    def sum(
        self,
        pieces: Sequence[_Piece],
        counts: Sequence[Count],
        edges: Sequence[Mapping[int, Count]],
        valued: Mapping[Range, tuple[Lines, Lines]],
        window: Window,
    ) -> _Sum:
        total = _Sum()
        for piece in pieces:
            parts = [counts[piece.want]]
            if piece.edge is not None:
                period = piece.place.period.pk if piece.place and piece.place.period else None
                parts += [
                    count for pk, count in edges[piece.edge].items() if piece.place is None or pk == period
                ]
            for count in parts:
                self._add(total, count, valued[piece.place] if piece.place else None)
            if piece.place is not None and piece.is_whole and self.quota.is_of_whole_tenant:
                before, after = valued[piece.place]
                terms = self._of_unit(before.terms)
                total.rated += terms
                total.grown += self._of_unit(after.terms) - terms
                if self.quota.with_paid:
                    total.rated += self._of_unit(after.paid)
                if self.quota.counts_corrections:  # what lies in the window, its use says already
                    total.rated += self._of_unit(
                        amount for end, amount in after.corrections if end <= window.start
                    )
        return total

    def _add(self, total: _Sum, count: Count, valued: tuple[Lines, Lines] | None) -> None:
        seconds = count.whole
        plain = self.plain(seconds)
        if valued is not None:
            rated, whole = self._in_lines(count.rated, valued[0]), self._in_lines(seconds, valued[1])
        else:
            rated, whole = self.plain(count.rated) if count.grown else plain, plain
        total.rated += rated
        total.grown += whole - rated
        total.use += whole
        total.plain += plain
        total.speed += self.plain(count.speed)

    def _in_lines(self, seconds: Mapping[counters.Key, Fraction], valued: Lines) -> Fraction:
        return sum(
            (
                valued.lines[key].part(used)
                for key, used in seconds.items()
                if key in valued.lines and valued.lines[key].amount.currency == self.quota.unit
            ),
            Fraction(0),
        )

    def plain(self, seconds: Mapping[counters.Key, Fraction]) -> Fraction:
        """Without tiers and allowances, which look at totals."""
        if self.quota.measure == QuotaMeasure.GPU_HOURS:
            return counters.gpu_hours(seconds.items())
        return sum((self.at_price(key.price, used) for key, used in seconds.items()), Fraction(0))

    def at_price(self, price: int | None, seconds: Fraction) -> Fraction:
        """What so many seconds cost in the quota's unit, at the first unit's price; of credits, out of wallets."""
        priced = self.prices.get(price or 0)
        if priced is None or priced.tag.currency != self.quota.unit:
            return Fraction(0)
        if self.quota.measure == QuotaMeasure.CREDITS and not priced.is_prepaid:
            return Fraction(0)
        return priced.a_second * seconds

    def _of_unit(self, amounts: Iterable[Money]) -> Fraction:
        return sum((money.amount for money in amounts if money.currency == self.quota.unit), Fraction(0))


def _forecasts(
    views: Mapping[int, View],
    calendars: Mapping[int, Calendar],
    values: Mapping[int, _Sum],
    prices: Mapping[int, PriceTag],
    moment: datetime,
) -> dict[int, Fraction]:
    """What windows will come to: the pace of the last whole days carried on, in the mix of prices that they have had.

    A rolling window has no end, and one that has ended no rest.
    """
    queried = [
        quota
        for quota, window in views.values()
        if quota.every != Every.ROLLING and window.start <= moment < window.end
    ]
    today = {quota.pk: calendars[quota.tenant_id].days.day_of(moment) for quota in queried}
    recent = counters.count_recent(
        [(quota.tenant_id, scope_of(quota), today[quota.pk]) for quota in queried], back=LAST
    )
    tags = {**prices, **valued_use.load_price_tags(
        {key.price for one in recent for key in one.use} - prices.keys()
    )}  # fmt: skip
    results = {}
    for quota, one in zip(queried, recent, strict=True):
        value, total = _Value(quota, tags), values[quota.pk]
        first = max(today[quota.pk] - LAST * DAY, one.begun or today[quota.pk])
        days = (today[quota.pk] - first).days
        if days >= FEWEST:
            rest = (views[quota.pk][1].end - moment) // timedelta(seconds=1)
            coming = value.plain(one.use) * Fraction(rest, days * 86400)  # as much a second as on those days
            mix = total.use / total.plain if total.plain else Fraction(1)
            results[quota.pk] = total.rated + total.grown + coming * mix
    return results
