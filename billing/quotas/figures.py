"""The one figure: how much of each quota is used now. Pages, the API, notices and commands read this one.

Used is what rating has counted on the days of the window, kept by its own deltas, and what running jobs have used since
they were last rated, at their present price.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from fractions import Fraction
from typing import NamedTuple

from billing.invoicing.statement_inputs import StatementInputs
from billing.models import BillingPeriod, Quota, QuotaMeasure, QuotaPeriod
from billing.quotas import carry_over, freshness, pools, reservations, valued_use
from billing.quotas.counters import EVERYTHING, Count, Edge, Span, Wants, scope_of
from billing.quotas.credits import load_credits
from billing.quotas.debts import load_debts
from billing.quotas.freshness import TenantState
from billing.quotas.pools import Loan
from billing.quotas.price_tags import PriceTag
from billing.quotas.quota_values import Piece, Range, Sum, Value
from billing.quotas.windows import DAY, Calendar, Window, days_of, load_calendars
from billing.reservations.progress import Progress
from billing.rules.forecast import FEWEST, LAST
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
class _Plan:
    """What is queried for all quotas at once."""

    wants: Wants = field(default_factory=Wants)
    lines: dict[Range, int] = field(default_factory=dict)  # the want of all of a range's use
    pieces: dict[int, list[Piece]] = field(default_factory=dict)  # by view
    billed: set[int] = field(default_factory=set)  # tenants of whom what is billed is counted


@dataclass(frozen=True, slots=True)
class FigureInputs:
    """What is read already, of all tenants whose quotas are asked for; None is read when it is needed.

    `with_relatives`: among the quotas are all that lend to one of them, or borrow. `newest`: the last period that has
    ended of each quota that carries over.
    """

    with_relatives: bool = False
    standing: Mapping[int, Progress] | None = None  # reservations
    newest: Mapping[int, QuotaPeriod] | None = None
    states: Mapping[int, TenantState] | None = None
    statements: StatementInputs | None = None


NOTHING_READ = FigureInputs()


View = tuple[Quota, Window]
"""A quota in one of its periods."""


def load_figures(
    quotas: Sequence[Quota],
    *,
    moment: datetime,
    forecasts: bool = True,
    besides: int = 0,
    inputs: FigureInputs = NOTHING_READ,
) -> dict[int, Figure]:
    """By quota how it stands, with its tenant and project loaded. A fixed number of queries, however many they are;
    for tenants whose plans have more than prices of single units those of a close besides. `besides`: a reservation
    that is left out."""
    return load_figures_and(quotas, (), moment=moment, forecasts=forecasts, besides=besides, inputs=inputs)[0]


def load_figures_and(
    quotas: Sequence[Quota],
    others: Sequence[View],
    *,
    moment: datetime,
    forecasts: bool = True,
    besides: int = 0,
    inputs: FigureInputs = NOTHING_READ,
) -> tuple[dict[int, Figure], list[Figure]]:
    """As `load_figures`; and how others of the same tenants stand in windows of theirs, without what is carried,
    reserved or lent."""
    keys = [quota.pk for quota in quotas]
    quotas = list(quotas) if inputs.with_relatives else [*quotas, *pools.load_relatives(quotas)]
    of_statements = inputs.statements or StatementInputs(frozenset(quota.tenant_id for quota in quotas))
    calendars = load_calendars(quotas, moment=moment, calendars=of_statements.calendars)
    windows = {quota.pk: calendars[quota.tenant_id].window(quota, moment) for quota in quotas}
    # Before what is used: of a pull between the two, seconds are counted twice for a moment, and never lost.
    reserved = reservations.load_reserved(
        quotas, windows, moment=moment, besides=besides, standing=inputs.standing
    )
    missing = load_debts(quotas)
    views = {
        quota.pk: (quota, windows[quota.pk])
        for quota in quotas
        if quota.wallet_id is None and not quota.lends
    }
    past = carry_over.list_past(quotas, windows=windows, calendars=calendars, newest=inputs.newest)
    views |= {key: (chain.quota, chain.windows[turn]) for key, (chain, turn) in past.items()}
    places = {-place: view for place, view in enumerate(others, 1 + len(past))}  # behind those
    views |= places
    results = (
        load_views(views, calendars, moment, of_statements, forecasts=forecasts, states=inputs.states)
        if views
        else {}
    )
    carried = carry_over.carried_by_quota(past, {key: results.pop(key).used for key in past})
    nothing = Fraction(0)
    missing |= {quota.pk: nothing for quota in quotas if quota.lends}
    for pk, lack in missing.items():
        results[pk] = Figure(windows[pk], lack, nothing, nothing, nothing, None, None, None)
    results |= {pk: replace(results[pk], carried=value) for pk, value in carried.items()}
    results |= {pk: replace(results[pk], reserved=held) for pk, held in reserved.items()}
    results |= pools.share(quotas, results)
    return {pk: results[pk] for pk in keys}, [results[key] for key in places]


def load_figures_until(wanted: Sequence[tuple[Quota, Window, datetime]]) -> dict[int, Fraction]:
    """By quota what is rated by now of the days of its window before that of a moment."""
    inputs = StatementInputs(frozenset(quota.tenant_id for quota, _, _ in wanted))
    calendars = load_calendars([quota for quota, _, _ in wanted], calendars=inputs.calendars)
    views = {}
    for quota, window, moment in wanted:
        days = calendars[quota.tenant_id].days
        end_day = max(window.first, days.day_of(moment))
        end = max(window.start + timedelta(seconds=1), days.between(end_day, None)[0][0])
        views[quota.pk] = quota, replace(window, end_day=end_day, end=end)
    moment = max(moment for _, _, moment in wanted)
    results = load_views(views, calendars, moment, inputs, forecasts=False)
    return {pk: figure.rated for pk, figure in results.items()}


def load_views(
    views: Mapping[int, View],
    calendars: Mapping[int, Calendar],
    moment: datetime,
    inputs: StatementInputs,
    *,
    forecasts: bool,
    states: Mapping[int, TenantState] | None = None,
) -> dict[int, Figure]:
    """By key how each quota stands in its window, without what is carried, reserved or lent."""
    if (
        states is None
    ):  # before what is used: of a pull between the two, a forecast has seconds twice, and never lacks any
        states = freshness.load_states({quota.tenant_id for quota, _ in views.values()}, moment)
    plan = _Plan()
    for key, (quota, window) in views.items():
        if quota.counts_corrections:
            plan.billed.add(quota.tenant_id)
        plan.pieces[key] = list(_pieces(plan, quota, window, calendars[quota.tenant_id]))
    recent = _plan_forecasts(plan, views, calendars, states, moment) if forecasts else {}
    prices, (counts, edges) = plan.wants.prices, plan.wants.count(moment)
    periods = _charged_periods(plan, counts, states)
    credited, corrected = load_credits(views, [period for period, _ in periods])
    charged = valued_use.load_charges(periods, prices, inputs, corrected) if periods else {}
    valued = {
        place: valued_use.make_lines(
            counts[want], prices, charged.get(place.period.pk) if place.period else None
        )
        for place, want in plan.lines.items()
    }
    values = {
        key: Value(quota, prices).sum(plan.pieces[key], counts, edges, valued, window)
        for key, (quota, window) in views.items()
    }
    expected = _forecasts(views, recent, counts, values, prices, states)
    return {
        key: Figure(
            window,
            values[key].rated,
            values[key].grown,
            credited.get(key, Fraction(0)),
            values[key].speed,
            expected.get(key),
            *freshness.read_through(quota, states[quota.tenant_id].marks, moment),
        )
        for key, (quota, window) in views.items()
    }


def _pieces(plan: _Plan, quota: Quota, window: Window, calendar: Calendar) -> Iterable[Piece]:
    scope, tenant = scope_of(quota), quota.tenant_id
    whole = Span(tenant, window.first, window.end_day, window.start, window.end)
    edge = plan.wants.add_edge(Edge(tenant, *window.edge, scope)) if window.edge is not None else None
    if quota.measure != QuotaMeasure.MONEY:
        yield Piece(plan.wants.add(whole, scope), None, edge=edge)
        return
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
        yield Piece(plan.wants.add(span, scope), place, is_whole, edge)


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


def _charged_periods(
    plan: _Plan, counts: Sequence[Count], states: Mapping[int, TenantState]
) -> list[tuple[BillingPeriod, Count]]:
    """Whose statements say what use comes to, with what was used in each."""
    by_statement = {pk for pk, state in states.items() if state.by_statement}
    queried = plan.billed | by_statement
    return [
        (place.period, counts[want])
        for place, want in plan.lines.items()
        if place.period is not None and place.span.tenant in queried
    ]


class _Recent(NamedTuple):
    """The want of the last whole days before `today`, whose pace goes on from `since`."""

    since: datetime
    today: date
    want: int


def _plan_forecasts(
    plan: _Plan,
    views: Mapping[int, View],
    calendars: Mapping[int, Calendar],
    states: Mapping[int, TenantState],
    moment: datetime,
) -> dict[int, _Recent]:
    """By quota. A rolling window has no end, and one that has ended no rest."""
    recent = {}
    for quota, window in views.values():
        if quota.every != Every.ROLLING and window.start <= moment < window.end:
            through, _ = freshness.read_through(quota, states[quota.tenant_id].marks, moment)
            since = _counted_until(through, window, moment)
            today = calendars[quota.tenant_id].days.day_of(since)
            want = plan.wants.add_days(quota.tenant_id, today - LAST * DAY, today, scope_of(quota))
            recent[quota.pk] = _Recent(since, today, want)
    return recent


def _counted_until(through: datetime | None, window: Window, moment: datetime) -> datetime:
    """Up to when what was used is read, and so counted: from then on it is expected, as on the overview.

    What has not been read for longer than a pace is taken of, such as a cluster that is gone, is not waited for.
    """
    if through is None or through < moment - LAST * timedelta(days=1):
        return moment
    return min(max(through, window.start), moment)


def _forecasts(
    views: Mapping[int, View],
    recent: Mapping[int, _Recent],
    counts: Sequence[Count],
    values: Mapping[int, Sum],
    prices: Mapping[int, PriceTag],
    states: Mapping[int, TenantState],
) -> dict[int, Fraction]:
    """What windows will come to: the pace of those days carried on, in the mix of prices that they have had.

    At least what running jobs have come to by now.
    """
    results = {}
    for key, (since, today, want) in recent.items():
        (quota, window), one, total = views[key], counts[want], values[key]
        first = max(today - LAST * DAY, states[quota.tenant_id].begun or today)
        days = (today - first).days
        if days >= FEWEST:
            rest = (window.end - since) // timedelta(seconds=1)
            use = Value(quota, prices).plain(one.rated)
            coming = use * Fraction(rest, days * 86400)  # as much a second as on those days
            mix = total.use / total.plain if total.plain else Fraction(1)
            results[key] = total.rated + max(coming * mix, total.grown)
    return results
