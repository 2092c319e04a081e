"""Whose use a close bills to whom: each tenant's own, and that of the tenants that it pays for.

What a tenant used while another paid is billed like its own, by its own plan and in its own periods, each with the
first period of the payer that reaches as far. Tiers, included hours, fees and commitments hold for either's time apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from billing.catalog import billing_periods, terms, third_party_payers
from billing.catalog.billing_periods import AROUND, Lacking
from billing.catalog.terms import Terms
from billing.catalog.third_party_payers import Stretch
from billing.invoicing.close_readiness import Rated
from billing.invoicing.statement_rows import Who
from billing.models import BillingPeriod, InvoiceLine, InvoiceState
from billing.rules.statement import TermKind
from portal.core.tenants.models import Tenant


@dataclass(frozen=True, slots=True)
class Book:
    """One tenant's use that one tenant pays."""

    period: BillingPeriod  # of who uses: what ends later is not billed yet
    said: Terms | None  # for the time that is paid
    user: Tenant | None = None  # where that is another
    begins: datetime | None = None  # the payer's period then: what ended before is a correction
    billed: frozenset[int] = frozenset()  # periods of the user of which the payer was billed terms of plans


def of_periods(
    periods: Sequence[BillingPeriod], rated: Mapping[int, Sequence[Rated]], *, lacking: Lacking
) -> tuple[dict[Who, Book], list[BillingPeriod]]:
    """Every tenant's own book, of whom each has one of the periods, and behind them those of whom they pay for.

    Beside them the periods that are supposed to be there: see `Lacking`. Two queries where nobody pays for another
    and plans have prices alone.
    """
    asked = {period.tenant_id: period for period in periods}
    stretches = third_party_payers.stretches_of(tenants=asked, payers=asked)
    users = {each.tenant for each in stretches if each.payer in asked}
    users |= {row.tenant for payer in asked for row in rated.get(payer, ()) if row.tenant != payer}
    said = terms.of_tenants({*asked, *users})
    of_tenant = third_party_payers.by_tenant(stretches)
    billed = _billed(asked, {*users, *of_tenant})
    found = {
        Who(pk, pk): Book(
            period,
            _said(said, Who(pk, pk), of_tenant.get(pk, [])),
            billed=frozenset(billed.get(Who(pk, pk), ())),
        )
        for pk, period in asked.items()
    }
    pairs = {Who(each.payer, each.tenant) for each in stretches if each.payer in asked}
    pairs |= {
        Who(payer, row.tenant) for payer in asked for row in rated.get(payer, ()) if row.tenant != payer
    }
    tenants = Tenant.objects.in_bulk(users) if users else {}
    told = {who: _said(said, who, of_tenant.get(who.tenant, [])) for who in pairs}
    needed = _needed(asked, found, told, of_tenant, tenants)
    supposed: list[BillingPeriod] = []
    if needed and lacking is Lacking.MADE:
        billing_periods.ensure_each(needed)
    elif needed and lacking is Lacking.SUPPOSED:
        supposed = billing_periods.lacking_each(needed)
    ended = _ended(asked, pairs, supposed) if pairs else {}
    for who in sorted(pairs & ended.keys(), key=lambda who: (who.payer, tenants[who.tenant].slug)):
        found[who] = Book(
            ended[who],
            told[who],
            tenants[who.tenant],
            asked[who.payer].start,
            frozenset(billed.get(who, ())),
        )
    return found, supposed


def by_others(periods: Sequence[BillingPeriod]) -> dict[Who, Book]:
    """What others pay of the use of these tenants, of whom each has one of the periods, in that period."""
    asked = {period.tenant_id: period for period in periods}
    stretches = third_party_payers.by_tenant(third_party_payers.stretches_of(tenants=asked))
    said = terms.of_tenants(stretches) if stretches else {}
    tenants = Tenant.objects.in_bulk(stretches) if stretches else {}
    return {
        Who(each.payer, tenant): Book(
            asked[tenant], _said(said, Who(each.payer, tenant), rows), tenants[tenant], asked[tenant].start
        )
        for tenant, rows in stretches.items()
        for each in rows
        if each.overlaps(asked[tenant].start, asked[tenant].end)
    }


def _billed(asked: Mapping[int, BillingPeriod], users: set[int]) -> Mapping[Who, set[int]]:
    """The users' periods of which terms of their plans stand on invoices. None is asked for where nobody pays."""
    found: dict[Who, set[int]] = defaultdict(set)
    if users:
        lines = InvoiceLine.objects.filter(
            tenant__in=asked,
            service_period__tenant__in=users,
            invoice__state=InvoiceState.ISSUED,
            kind__in=list(TermKind),
        )
        columns = ("tenant", "service_period__tenant", "service_period")
        for payer, tenant, period in lines.order_by().values_list(*columns).distinct():
            found[Who(payer, tenant)].add(period)
    return found


def _needed(
    asked: Mapping[int, BillingPeriod],
    own: Mapping[Who, Book],
    told: Mapping[Who, Terms | None],
    stretches: Mapping[int, Sequence[Stretch]],
    tenants: Mapping[int, Tenant],
) -> list[tuple[Tenant, datetime, datetime]]:
    """From when until when periods have to be there, of each tenant once: for its terms, and where another pays."""
    wanted = [
        _reach(book.said.tenant, book.said, asked[who.payer])
        for who, book in own.items()
        if book.said is not None
    ]
    wanted += [
        _reach(tenants[who.tenant], said, asked[who.payer])
        for who, said in told.items()
        if any(
            each.payer == who.payer and each.overlaps(asked[who.payer].start, asked[who.payer].end)
            for each in stretches.get(who.tenant, ())
        )
    ]
    found: dict[int, tuple[Tenant, datetime, datetime]] = {}
    for tenant, since, until in wanted:
        _, first, last = found.get(tenant.pk, (tenant, since, until))
        found[tenant.pk] = (tenant, min(first, since), max(last, until))
    return list(found.values())


def _reach(tenant: Tenant, said: Terms | None, period: BillingPeriod) -> tuple[Tenant, datetime, datetime]:
    if said is None:
        return tenant, period.start, period.end
    until = period.end + timedelta(seconds=1) if said.in_advance else period.end
    return tenant, min(period.start, said.begins or period.start), until


def _ended(
    asked: Mapping[int, BillingPeriod], pairs: set[Who], supposed: Sequence[BillingPeriod]
) -> dict[Who, BillingPeriod]:
    """The newest period of each that has ended with the payer's."""
    until = max(asked[who.payer].end for who in pairs)
    kept = BillingPeriod.objects.filter(tenant__in={who.tenant for who in pairs}, end__lte=until)
    found = _newest(asked, pairs, [*kept.filter(end__gt=until - AROUND), *supposed])
    lacking = pairs - found.keys()
    return found | (_newest(asked, lacking, kept) if lacking else {})


def _newest(
    asked: Mapping[int, BillingPeriod], pairs: set[Who], kept: Iterable[BillingPeriod]
) -> dict[Who, BillingPeriod]:
    by_tenant: dict[int, list[BillingPeriod]] = defaultdict(list)
    for each in sorted(kept, key=lambda each: each.start):
        by_tenant[each.tenant_id].append(each)
    found = {}
    for who in pairs:
        over = [each for each in by_tenant[who.tenant] if each.end <= asked[who.payer].end]
        if over:
            found[who] = over[-1]
    return found


def _said(said: Mapping[int, Terms], who: Who, stretches: Sequence[Stretch]) -> Terms | None:
    payer = None if who.payer == who.tenant else who.payer
    own = [each for each in stretches if each.tenant == who.tenant]
    return terms.paid_by({pk: said[pk] for pk in (who.tenant,) if pk in said}, payer, own).get(who.tenant)
