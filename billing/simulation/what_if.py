"""Trying a plan on what was used: what months that have been would have come to under it, beside what they did.

The engine itself rates and prices, in transactions that are taken back, some tenants at a time. They lock the
subscriptions of these tenants, and nothing that taking usage in, rating or closing waits for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from itertools import islice
from typing import NamedTuple

from django.db import connection, transaction
from django.db.models import Q

from billing.catalog import allowances, billing_periods, line_descriptions, terms, third_party_payers
from billing.catalog.terms import Terms
from billing.invoicing.statement_rows import load_prices
from billing.models import BillingPeriod, Plan, Subscription
from billing.queries.costs import per_currency
from billing.rules.money import Money
from billing.rules.period import shifted
from billing.rules.statement_lines import LineKey
from billing.simulation import engine, own_usage
from billing.simulation.engine import Owing, Used
from clusters import usage
from portal.core.tenants.models import Ownership, Tenant

TOGETHER = 5
"""Tenants in one transaction, all of whose months it rates: so long a change of their subscriptions waits."""

Months = tuple[tuple[int, int], tuple[int, int]]
"""The first and the last, as (year, month)."""

Draft = Callable[[str], None]
"""Writes the plan under the name that it is given, into a transaction that is taken back."""

Progress = Callable[[int], None]
"""Gets the records that were tried, slice by slice."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of one period, as it is owed now and as it would be; None where there is no such line."""

    period: BillingPeriod
    line: str
    now: Money | None
    tried: Money | None


@dataclass(slots=True)
class Simulation:
    """What would change for one tenant. `unpriced`: what no price of the plan covers, in resource-hours."""

    tenant: str
    rows: list[Row] = field(default_factory=list)
    unpriced: list[tuple[str, str, Fraction]] = field(default_factory=list)  # resource, GPU model, hours

    @property
    def now(self) -> list[Money]:
        """One sum per currency."""
        return per_currency(row.now for row in self.rows if row.now is not None)

    @property
    def tried(self) -> list[Money]:
        """One sum per currency."""
        return per_currency(row.tried for row in self.rows if row.tried is not None)


def tenants_on(*, plan: str, months: Months) -> list[Tenant]:
    """Whoever was on the plan of that name in these months; whoever was on any, where nobody was."""
    first, last = months
    since, until = _first(*first), _first(*shifted(last, 1))
    then = Subscription.objects.filter(since__lt=until).filter(Q(until=None) | Q(until__gt=since))
    named = then.filter(plan__name=plan)
    on_plan = named if named.exists() else then
    return list(Tenant.objects.filter(pk__in=on_plan.values("tenant")).order_by("slug"))


class Counted(NamedTuple):
    """Records that are rated, at most; of them jobs that are in files alone, and how many tenants have these."""

    records: int
    in_files: int
    owners: int


def count_records(*, tenants: Sequence[Tenant], months: Months) -> Counted:
    """What will be rated for it."""
    in_tables = in_files = owners = 0
    for group in _groups(tenants):
        accounts, since, until, _ = _reach(group, months)
        in_tables += usage.count_window(accounts, since=since, until=until)
        jobs, having = own_usage.count_filed(group, since=since, until=until)
        in_files, owners = in_files + jobs, owners + having
    return Counted(in_tables + in_files, in_files, owners)


def simulate_plan(
    *,
    tenants: Iterable[Tenant],
    months: Months,
    draft: Draft,
    progress: Progress | None = None,
    most_in_files: int | None = None,
) -> list[Simulation]:
    """What each of the tenants owes for the periods that start in these months, and would owe under the draft.

    In these months each is on the draft whenever it was on any plan, or all along where it was on none. What
    an allowance would have carried over from before does not count. Keeps nothing. Whatever `draft` raises
    is raised on, and RowsInFilesError where files cannot be read, or have more than so many jobs of a tenant.
    """
    tried = []
    for group in _groups(tenants):
        tried += _simulate(group, months, draft, progress or (lambda _: None), most_in_files)
    return tried


def _groups(tenants: Iterable[Tenant]) -> Iterator[list[Tenant]]:
    waiting = iter(tenants)
    while group := list(islice(waiting, TOGETHER)):
        yield group


def _simulate(
    tenants: list[Tenant], months: Months, draft: Draft, progress: Progress, most_in_files: int | None
) -> list[Simulation]:
    accounts, since, until, periods = _reach(tenants, months)
    if not periods:
        return [Simulation(tenant.slug) for tenant in tenants]
    now = _owed_now(periods)
    with transaction.atomic():
        # Before anything is locked: reading files takes a while.
        own_usage.load_filed(tenants, since=since, until=until, most=most_in_files)
        draft(name := _scratch())
        plan = Plan.objects.get(name=name)
        slices = usage.slices_of_window(accounts, since=since, until=until)
        counts = (usage.load_window(*ids, accounts, since=since, until=until) for ids in slices)
        tried, used = _tried_on(plan, tenants, periods, counts, progress)
        transaction.set_rollback(True)
    return [_simulated(tenant, periods, now, tried, used) for tenant in tenants]


def simulate_offer(*, tenant: Tenant, plan: Plan, period: BillingPeriod, most: int) -> Simulation | None:
    """What the tenant owes for the period, and would owe on that plan, which everybody may choose. Keeps nothing.

    Runs in the scope of acting for the tenant, which was on public plans alone in the period. Some thirty queries.
    None where more than `most` jobs ran in it. Raises RowsInFilesError.
    """
    now = _owed_now([period])
    with transaction.atomic():
        since, until = (int(at.timestamp()) for at in (period.start, period.end))
        count = own_usage.load_own(tenant, since=since, until=until, most=most)
        if count is not None:
            tried, used = _tried_on(plan, [tenant], [period], [count], lambda _: None)
        transaction.set_rollback(True)
    return None if count is None else _simulated(tenant, [period], now, tried, used)


def _tried_on(
    plan: Plan,
    tenants: Sequence[Tenant],
    periods: Sequence[BillingPeriod],
    counts: Iterable[int],
    progress: Progress,
) -> tuple[Lines, Mapping[Used, Fraction]]:
    """What these tenants owe on the plan, and use by it; each of the `counts` is of what was loaded just before."""
    _put_on(plan, tenants, periods)
    engine.prepare()
    shared = plan.versions.filter(prices__allowance__isnull=False).exists()
    sums = []
    for count in counts:
        if count:
            sums += engine.sums([period.pk for period in periods], in_order=shared)
        progress(count)
    if shared:
        engine.count_cuts()
    used = engine.added(sums)
    return _owed_supposed(periods, used), used


def _reach(tenants: Sequence[Tenant], months: Months) -> tuple[list[int], int, int, list[BillingPeriod]]:
    """The accounts, the epoch seconds [since, until) and the periods that are looked at."""
    periods: list[BillingPeriod] = []
    at, last = months
    while at <= last:
        year, month = at
        periods += billing_periods.periods_starting_in(tenants, year=year, month=month, making=False).values()
        at = shifted(at, 1)
    owned = Ownership.objects.filter(tenant__in=tenants).values_list("account", flat=True).distinct()
    since = min((int(period.start.timestamp()) for period in periods), default=0)
    until = max((int(period.end.timestamp()) for period in periods), default=0)
    return sorted(owned), since, until, sorted(periods, key=lambda period: (period.tenant_id, period.start))


def _scratch() -> str:
    """A name that no plan has: people's have no such sign in them, and other sessions another number."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return f"trial~{cursor.fetchone()[0]}"


def _put_on(plan: Plan, tenants: Sequence[Tenant], periods: Sequence[BillingPeriod]) -> None:
    reach = {
        pk: (
            min(period.start for period in periods if period.tenant_id == pk),
            max(period.end for period in periods if period.tenant_id == pk),
        )
        for pk in {period.tenant_id for period in periods}
    }
    subscriptions = Subscription.objects.filter(tenant__in=tenants)
    within = [
        row
        for row in subscriptions
        if row.tenant_id in reach
        and row.since < reach[row.tenant_id][1]
        and (row.until is None or row.until > reach[row.tenant_id][0])
    ]
    Subscription.objects.filter(pk__in=[row.pk for row in within]).update(plan=plan)
    lacking = reach.keys() - {row.tenant_id for row in within}
    Subscription.objects.bulk_create(
        Subscription(tenant_id=pk, plan=plan, since=reach[pk][0], until=reach[pk][1])
        for pk in sorted(lacking)
    )


Line = tuple[int, str]  # period, and what the line says
Lines = dict[int, dict[Line, list[Money]]]  # by tenant


def _owed_now(periods: Sequence[BillingPeriod]) -> Lines:
    """What is owed by the plans that the tenants were on, wallets' use included: that, if anything, was billed."""
    tenants = {period.tenant_id for period in periods}
    terms_by_tenant = terms.of_tenants(tenants)
    last = max(period.end for period in periods)
    before = (
        BillingPeriod.objects.filter(tenant__in=terms_by_tenant.keys(), start__lt=last)
        if terms_by_tenant
        else []
    )
    by_id = {period.pk: period for period in [*periods, *before]}  # which may carry something over
    return _lines(
        _owed(list(by_id.values()), engine.rated_use(by_id)[0], terms_by_tenant, allowances.in_order), periods
    )


def _owed_supposed(periods: Sequence[BillingPeriod], used: Mapping[Used, Fraction]) -> Lines:
    terms_by_tenant = terms.of_tenants({period.tenant_id for period in periods})
    charged = {key: seconds for key, seconds in used.items() if key.price is not None}
    return _lines(_owed(periods, charged, terms_by_tenant, allowances.in_order_supposed), periods)


def _owed(
    periods: Sequence[BillingPeriod],
    used: Mapping[Used, Fraction],
    terms_by_tenant: Mapping[int, Terms],
    in_order: Callable[..., Mapping[int, Fraction]],
) -> list[tuple[int, Owing]]:
    """What the tenants' use comes to, whoever pays: each who does has the tiers and terms for its own time."""
    stretches = third_party_payers.stretches_of(tenants={period.tenant_id for period in periods})
    paying = {stretch.payer for stretch in stretches} | {key.payer for key in used if key.payer is not None}
    prices = load_prices(key.price for key in used)
    owed: list[tuple[int, Owing]] = []
    for payer in (None, *sorted(paying)):
        own = terms.paid_by(terms_by_tenant, payer, stretches)
        ordered = partial(in_order, payer=payer)
        owed += engine.owed_by_tenant(periods, engine.paid_by(used, payer), prices, own, ordered).items()
    return owed


def _lines(owed: Sequence[tuple[int, Owing]], periods: Sequence[BillingPeriod]) -> Lines:
    shown = {(period.tenant_id, billing_periods.as_rule(period)): period.pk for period in periods}
    lines_by_tenant: Lines = {}
    for tenant, owing in owed:
        lines = lines_by_tenant.setdefault(tenant, {})
        named = owing.books.terms.by_key() if owing.books.terms else {}
        for key, amount in owing.amounts.items():
            if (period := shown.get((tenant, key.service))) is None:
                continue
            if isinstance(key, LineKey):
                line = f"{key.project}: {line_descriptions.describe(owing.books.prices[key.price_id])}"
            elif amount.amount:
                line = named[key.kind, key.term_id].name
            else:
                continue
            lines.setdefault((period, line), []).append(amount)
    return lines_by_tenant


def _simulated(
    tenant: Tenant,
    periods: Sequence[BillingPeriod],
    now: Lines,
    tried: Lines,
    used: Mapping[Used, Fraction],
) -> Simulation:
    result = Simulation(tenant.slug)
    before, after = now.get(tenant.pk, {}), tried.get(tenant.pk, {})
    for period in periods:
        if period.tenant_id == tenant.pk:
            lines = dict.fromkeys(line for at, line in (*before, *after) if at == period.pk)
            for line in lines:
                result.rows += _rows(
                    period, line, before.get((period.pk, line)), after.get((period.pk, line))
                )
    sums: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
    for key, seconds in used.items():
        if key.tenant == tenant.pk and key.price is None:
            sums[key.resource, key.gpu_model] += seconds / 3600
    result.unpriced = [(resource, model, hours) for (resource, model), hours in sorted(sums.items())]
    return result


def _rows(period: BillingPeriod, line: str, now: list[Money] | None, tried: list[Money] | None) -> list[Row]:
    """One, or one per currency where the plan is in another one."""
    sums = [{amount.currency: amount for amount in per_currency(amounts or [])} for amounts in (now, tried)]
    return [
        Row(period, line, sums[0].get(currency), sums[1].get(currency))
        for currency in sorted(sums[0].keys() | sums[1].keys())
    ]


def _first(year: int, month: int) -> datetime:
    return datetime(year, month, 1, tzinfo=UTC)
