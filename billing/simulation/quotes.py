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
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Min

from billing.catalog import billing_periods, line_descriptions, terms
from billing.catalog.allowances import Cut
from billing.catalog.terms import Terms
from billing.models import BillingPeriod, Price
from billing.models.rated import Resource
from billing.queries.costs import per_currency
from billing.rating import single_run
from billing.rules.meters import Meter
from billing.rules.money import Money
from billing.rules.statement_lines import Key, LineKey
from billing.simulation import engine
from billing.simulation.engine import Owing, Sum, Used
from billing.simulation.messages import SENTENCES
from billing.simulation.quote_inputs import QuoteInputs
from clusters.connectors.base import UsageFact
from clusters.models import Account, Cluster
from portal.core.tenants.models import Ownership, Project, Tenant
from portal.errors import CodedError
from portal.excerpt import quoted
from portal.prepared import instances, prepared_cursor
from portal.sql_files import Statements

sql = Statements(__file__, "quotes.sql")

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
    account: str  # as the project "" for whoever sees their own usage alone, and names no account
    project: str
    parts: list[Part]
    terms: list[tuple[str, Money]]
    unpriced: list[tuple[str, Fraction]]
    total: list[Money]  # one per currency; none where nothing of it is charged


def quote(
    *,
    tenant: Tenant,
    cluster: str,
    job: UsageFact,
    now: datetime,
    owner: Ownership | None = None,
) -> Quote:
    """What the tenant's job would cost that runs from `job.started` to `job.ended`, on the named cluster.

    `job.account` is one that the tenant owns then, "" for any of them; `owner`, where `account_of` has said so already.
    It starts within two years of `now`, or in a billing period that is kept. Keeps nothing, and waits for nobody who
    rates. Raises QuoteError.
    """
    started = datetime.fromtimestamp(job.started or 0, UTC)
    seconds = read_length(job)
    _refuse_far(tenant, started, now)
    account = owner or account_of(tenant, cluster, job.account, started)
    return price_job(cut_job(job, account=account, now=now, inputs=QuoteInputs(tenant)), seconds)


@dataclass(frozen=True, slots=True)
class CutJob:
    """A job as it would be rated, and what it is priced by: for quotes of any length up to its own."""

    job: UsageFact
    account: Ownership
    cuts: Sequence[Cut]  # of its tenant
    inputs: QuoteInputs

    @property
    def started(self) -> datetime:
        return datetime.fromtimestamp(self.job.started or 0, UTC)

    def cuts_until(self, end: int) -> list[Cut]:
        """Of as much of it as runs until that second: it holds the same in each of them."""
        return [
            cut if cut.service_to <= end else _shortened(cut, end)
            for cut in self.cuts
            if cut.service_from < end
        ]


def cut_job(job: UsageFact, *, account: Ownership, now: datetime, inputs: QuoteInputs) -> CutJob:
    """Of the tenant of `inputs`, who owns the account; never suspended. One query, with periods that lack two."""
    tenant, started = inputs.tenant, datetime.fromtimestamp(job.started or 0, UTC)
    ended = started + timedelta(seconds=read_length(job))
    _refuse_far(tenant, started, now)
    if inputs.list_covering(started, ended):
        return CutJob(job, account, _cut(account, job, tenant), inputs)
    try:
        with transaction.atomic():
            new_periods = billing_periods.make_missing(
                tenant=tenant, since=started, until=ended, stored=inputs.periods
            )
            cuts = _cut(account, job, tenant)
            transaction.set_rollback(True)
    except IntegrityError:  # somebody else has made one of them meanwhile, to be read
        inputs = QuoteInputs(tenant, by_statement=inputs.by_statement)
        return cut_job(job, account=account, now=now, inputs=inputs)
    return CutJob(job, account, cuts, inputs.with_periods(new_periods))


def price_job(cut: CutJob, seconds: int) -> Quote:
    """What the first so many seconds of it would cost."""
    job, account, inputs = cut.job, cut.account, cut.inputs
    ended = cut.started + timedelta(seconds=seconds)
    cuts = cut.cuts_until((job.started or 0) + seconds)
    added = engine.added(_sum(one) for one in cuts)
    parts, changed = _parts(added, _owed(added, inputs.list_covering(cut.started, ended), cuts, inputs))
    total = per_currency([*(part.amount for part in parts), *(amount for _, amount in changed)])
    named, project = account.account.name, account.project.name
    if inputs.tenant.only_users is not None and not job.account:  # it may be one of others
        named = project = ""
    return Quote(cut.started, ended, named, project, parts, changed, _unpriced(added), total)


def _cut(account: Ownership, job: UsageFact, tenant: Tenant) -> list[Cut]:
    cuts = single_run.cut_run(account.account_id, job)
    if cuts is None:
        cluster = account.account.cluster.name
        raise QuoteError("account-unknown", account=quoted(job.account), cluster=cluster)
    return [cut for cut in cuts if cut.tenant == tenant.pk]  # another may own the account later


def _shortened(cut: Cut, end: int) -> Cut:
    units = cut.units * (end - cut.service_from) // (cut.service_to - cut.service_from)
    return cut._replace(service_to=end, units=units)


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
    users = None if tenant.only_users is None else list(tenant.only_users)
    values: dict[str, Any] = {
        "tenant": tenant.pk,
        "cluster": cluster,
        "account": name,
        "moment": at,
        "users": users,
    }
    with prepared_cursor() as cursor:
        cursor.execute(sql.ACCOUNT, values)
        row = next(instances(cursor, Ownership, Account, Cluster, Project), None)
    if row is None:
        code = "account-not-owned" if name else "no-account-owned"
        raise QuoteError(code, tenant=tenant.name, account=quoted(name), cluster=quoted(cluster))
    owner: Ownership = row[0]
    _, owner.account, owner.account.cluster, owner.project = row
    owner.tenant = tenant
    return owner


def _sum(cut: Cut) -> Sum:
    """What it adds to what is used under its key."""
    key = Used(cut.tenant, cut.period, cut.project, cut.resource, cut.price, cut.gpu_model, cut.payer)
    return Sum(key, Fraction(cut.units * cut.share_num, cut.share_den))


def _owed(
    added: Mapping[Used, Fraction],
    touched: Sequence[BillingPeriod],
    cuts: Sequence[Cut],
    inputs: QuoteInputs,
) -> list[tuple[Owing, Owing]]:
    """What is owed without the job and with it, over all periods that bear on it, by each who pays for it."""
    tenant, terms_by_tenant = inputs.tenant, inputs.terms
    charging = [period for period in touched if period.pk in {key.period for key in added}] or touched[-1:]
    rolls = _rolls(terms_by_tenant.get(tenant.pk))
    periods = [row for row in inputs.periods if row.start < touched[-1].end] if rolls else charging
    charged = {key: seconds for key, seconds in added.items() if key.price is not None}
    rated = inputs.load_rated(periods, {key.price for key in charged if key.price is not None})
    both = dict(rated)
    for key, seconds in charged.items():
        both[key] = both.get(key, Fraction(0)) + seconds
    prices = inputs.statements.load_prices(key.price for key in both)
    pairs = []
    for payer in sorted({key.payer for key in added} or {None}, key=lambda pk: pk or 0):
        own = terms.paid_by(terms_by_tenant, payer, inputs.stretches)
        pair = [
            engine.owed_by_tenant(
                periods, engine.paid_by(used, payer), prices, own, partial(in_order, payer=payer)
            )
            for used, in_order in (
                (rated, inputs.in_order),
                (both, partial(inputs.in_order_with, cuts=cuts)),
            )
        ]
        pairs.append((pair[0][tenant.pk], pair[1][tenant.pk]))
    return pairs


def _rolls(own: Terms | None) -> bool:
    """Whether something may be carried over from one period to the next."""
    return own is not None and any(
        allowance.rollover for listed in own.allowances.values() for allowance in listed
    )


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
