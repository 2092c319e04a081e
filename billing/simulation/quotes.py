"""What a job of some shape and length would cost a tenant, were it run: rated and priced by the engine itself.

A quote is what the statements of the periods that the job falls into grow by. So it counts tiers that are filled
already, included hours that are left, and a commitment that the job only helps to reach.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import partial

from django.db import transaction
from django.db.models import Min, Q

from billing.catalog import allowances, billing_periods, line_descriptions, terms, third_party_payers
from billing.catalog.terms import Terms
from billing.invoicing.statement_rows import load_prices
from billing.models import BillingPeriod, Price
from billing.models.rated import Resource
from billing.queries.costs import per_currency
from billing.rules.meters import Meter
from billing.rules.money import Money
from billing.rules.statement_lines import Key, LineKey
from billing.simulation import engine
from billing.simulation.engine import Owing, Used
from billing.simulation.messages import SENTENCES
from clusters import usage
from clusters.connectors.base import UsageFact
from portal.core.tenants.models import Ownership, Tenant
from portal.errors import CodedError
from portal.excerpt import quoted

LONGEST = 366 * 86_400
"""Seconds that a job may be quoted for."""

REACH = timedelta(days=2 * 365)
"""How far from now a job may start; further back only where its tenant has billing periods already."""


class QuoteError(CodedError):
    """It cannot be quoted so; the message says why and what to say instead."""

    sentences = SENTENCES


@dataclass(frozen=True, slots=True)
class Part:
    """What the job adds to the use at one price. `scale` says in words how the price depends on the quantity."""

    description: str
    meter: Meter
    price: Price
    scale: str
    seconds: Fraction  # resource-seconds
    amount: Money  # in whole minor units: what the lines of the price grow by


@dataclass(frozen=True, slots=True)
class Quote:
    """What a job adds to what its tenant owes, before tax.

    `terms` are fees, commitment and discounts that come out differently with it. `unpriced`: resources and
    their resource-seconds that no price covers; then there is no telling what the job costs.
    """

    started: datetime
    ended: datetime
    account: str
    project: str
    parts: list[Part]
    terms: list[tuple[str, Money]]
    unpriced: list[tuple[str, Fraction]]
    total: list[Money]  # one per currency; none where nothing of it is charged


def quote(
    *, tenant: Tenant, cluster: str, job: UsageFact, now: datetime, owner: Ownership | None = None
) -> Quote:
    """What the tenant's job would cost that runs from `job.started` to `job.ended`, on the named cluster.

    `job.account` is one that the tenant owns then, "" for any of them; `owner`: as `account_of` says it, for callers
    that quote several lengths. It starts within two years of `now`, or in
    a billing period that is kept. Keeps nothing, and waits for nobody who rates. Raises QuoteError.
    """
    seconds = read_length(job)
    started = datetime.fromtimestamp(job.started or 0, UTC)
    ended = started + timedelta(seconds=seconds)
    _refuse_far(tenant, started, now)
    with transaction.atomic():
        account = owner or account_of(tenant, cluster, job.account, started)
        billing_periods.ensure(tenant=tenant, since=started, until=ended)
        if not usage.load_supposed(account.account_id, job):
            raise QuoteError("account-unknown", account=quoted(job.account), cluster=cluster)
        engine.prepare()
        touching = BillingPeriod.objects.filter(tenant=tenant, start__lt=ended, end__gt=started)
        touched = list(touching.order_by("start"))
        sums = engine.sums([period.pk for period in touched], in_order=True)
        added = {key: seconds for key, seconds in engine.added(sums).items() if key.tenant == tenant.pk}
        owed = _owed(tenant, added, touched, ended)
        transaction.set_rollback(True)
    parts, changed = _parts(added, owed)
    unpriced = _unpriced(added)
    total = per_currency([*(part.amount for part in parts), *(amount for _, amount in changed)])
    return Quote(started, ended, account.account.name, account.project.name, parts, changed, unpriced, total)


def _refuse_far(tenant: Tenant, started: datetime, now: datetime) -> None:
    """Every billing period from those kept to the job's is made for a quote: a far day would be thousands."""
    latest = now + REACH
    if started > latest:
        raise QuoteError("too-late", latest=latest)
    earliest = now - REACH
    if started < earliest:
        first = BillingPeriod.objects.filter(tenant=tenant).aggregate(first=Min("start"))["first"]
        earliest = min(earliest, first or now)
    if started < earliest:
        raise QuoteError("too-early", earliest=earliest)


def read_length(job: UsageFact) -> int:
    """The seconds from its start to its end. Raises QuoteError where nobody is quoted for so many."""
    if job.started is None or job.ended is None or not 0 < job.ended - job.started <= LONGEST:
        raise QuoteError("job-length")
    return job.ended - job.started


def account_of(tenant: Tenant, cluster: str, name: str, at: datetime) -> Ownership:
    """The tenant's account of that name on the cluster at the moment; "" for the first. Raises QuoteError."""
    rows = (
        Ownership.objects.filter(
            Q(since=None) | Q(since__lte=at),
            Q(until=None) | Q(until__gt=at),
            tenant=tenant,
            account__cluster__name=cluster,
        )
        .select_related("account__cluster", "project")
        .order_by("account__name")
    )
    chosen = rows.filter(account__name=name).first() if name else rows.first()
    if chosen is None:
        code = "account-not-owned" if name else "no-account-owned"
        raise QuoteError(code, tenant=tenant.name, account=quoted(name), cluster=quoted(cluster))
    return chosen


def _owed(
    tenant: Tenant, added: Mapping[Used, Fraction], touched: Sequence[BillingPeriod], ended: datetime
) -> list[tuple[Owing, Owing]]:
    """What is owed without the job and with it, over all periods that bear on it, by each who pays for it."""
    terms_by_tenant = terms.of_tenants([tenant.pk])
    stretches = third_party_payers.stretches_of(tenants=[tenant.pk])
    charging = [period for period in touched if period.pk in {key.period for key in added}] or touched[-1:]
    periods = _list_earlier(tenant, ended) if _rolls(terms_by_tenant.get(tenant.pk)) else charging
    rated = engine.rated_use(period.pk for period in periods)
    charged = {key: seconds for key, seconds in added.items() if key.price is not None}
    both = dict(rated)
    for key, seconds in charged.items():
        both[key] = both.get(key, Fraction(0)) + seconds
    prices = load_prices(key.price for key in both)
    pairs = []
    for payer in sorted({key.payer for key in added} or {None}, key=lambda pk: pk or 0):
        own = terms.paid_by(terms_by_tenant, payer, stretches)
        pair = [
            engine.owed_by_tenant(
                periods, engine.paid_by(used, payer), prices, own, partial(in_order, payer=payer)
            )
            for used, in_order in ((rated, allowances.in_order), (both, allowances.in_order_with_supposed))
        ]
        pairs.append((pair[0][tenant.pk], pair[1][tenant.pk]))
    return pairs


def _rolls(own: Terms | None) -> bool:
    """Whether something may be carried over from one period to the next."""
    return own is not None and any(
        allowance.rollover for listed in own.allowances.values() for allowance in listed
    )


def _list_earlier(tenant: Tenant, ended: datetime) -> Sequence[BillingPeriod]:
    """All periods up to the end of the job."""
    return list(BillingPeriod.objects.filter(tenant=tenant, start__lt=ended))


def _parts(
    added: Mapping[Used, Fraction], owed: Sequence[tuple[Owing, Owing]]
) -> tuple[list[Part], list[tuple[str, Money]]]:
    grown: dict[int, list[Money]] = defaultdict(list)
    changed: dict[str, list[Money]] = defaultdict(list)
    prices: dict[int, Price] = {}
    for before, after in owed:
        prices |= after.books.prices
        named = after.books.terms.by_key() if after.books.terms else {}
        for key, amount in _grown(before, after).items():
            if isinstance(key, LineKey):
                grown[key.price_id].append(amount)
            elif amount.amount:
                changed[named[key.kind, key.term_id].name].append(amount)
    seconds: dict[int, Fraction] = defaultdict(Fraction)
    for key_used, value in added.items():
        if key_used.price is not None:
            seconds[key_used.price] += value
    parts = []
    for pk, value in seconds.items():
        price = prices[pk]
        amount = sum(grown[pk], Money.zero(engine.currency_of(price)))
        description = (
            line_descriptions.describe(price),
            Meter(price.meter),
            price,
            line_descriptions.scale(price),
        )
        parts.append(Part(*description, value, amount))
    parts.sort(key=lambda part: (list(Meter).index(part.meter), part.description, part.price.pk))
    return parts, [(name, amount) for name, amounts in changed.items() for amount in per_currency(amounts)]


def _grown(before: Owing, after: Owing) -> dict[Key, Money]:
    return {
        key: amount - before.amounts.get(key, Money.zero(amount.currency))
        for key, amount in after.amounts.items()
    }


def _unpriced(added: Mapping[Used, Fraction]) -> list[tuple[str, Fraction]]:
    sums: dict[str, Fraction] = defaultdict(Fraction)
    for key, seconds in added.items():
        if key.price is None:
            sums[key.resource] += seconds
    return [(resource.value, sums[resource.value]) for resource in Resource if resource.value in sums]
