"""Whose use a close bills to whom: each tenant's own, and that of the tenants that it pays for.

What a tenant used while another paid is billed like its own, by its own plan and in its own periods, each with the
first period of the payer that reaches as far. Tiers, included hours, fees and commitments hold for either's time apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter

from billing.catalog import billing_periods, terms, third_party_payers
from billing.catalog.billing_periods import AROUND, Lacking
from billing.catalog.terms import Terms
from billing.catalog.third_party_payers import Stretch
from billing.invoicing.close_inputs import RatedPeriod
from billing.invoicing.statement_inputs import StatementInputs
from billing.invoicing.statement_rows import UsageParties
from billing.models import BillingPeriod, InvoiceLine, InvoiceState
from billing.rules.statement_lines import TermKind
from portal.core.tenants.models import Tenant


@dataclass(frozen=True, slots=True)
class PayerStatement:
    """One tenant's use that one tenant pays."""

    period: BillingPeriod  # of who uses: what ends later is not billed yet
    plan_terms: Terms | None  # for the time that is paid
    user: Tenant | None = None  # where that is another
    begins: datetime | None = None  # the payer's period then: what ended before is a correction
    billed: frozenset[int] = frozenset()  # periods of the user of which the payer was billed terms of plans


def load_payer_statements(
    periods: Sequence[BillingPeriod],
    rated: Mapping[int, Sequence[RatedPeriod]],
    inputs: StatementInputs,
    *,
    lacking: Lacking,
    stretches: Sequence[Stretch] | None = None,
) -> tuple[dict[UsageParties, PayerStatement], list[BillingPeriod]]:
    """Every tenant's own book, of whom each has one of the periods, and behind them those of whom they pay for.

    Beside them the periods that are supposed to be there: see `Lacking`. Two queries where nobody pays for another
    and plans have prices alone; one less where `stretches` says of all of them who paid for whom. `calendar`: as of
    `terms.of_tenants`.
    """
    payer_periods = {period.tenant_id: period for period in periods}
    if stretches is None:
        stretches = third_party_payers.stretches_of(tenants=payer_periods, payers=payer_periods)
    users = {stretch.tenant for stretch in stretches if stretch.payer in payer_periods}
    users |= {row.tenant for payer in payer_periods for row in rated.get(payer, ()) if row.tenant != payer}
    tenant_terms = inputs.terms_with(users)
    of_tenant = third_party_payers.by_tenant(stretches)
    billed = _load_billed_periods(payer_periods, {*users, *of_tenant})
    payer_statements = {
        UsageParties(pk, pk): PayerStatement(
            period,
            _paid_terms(tenant_terms, UsageParties(pk, pk), of_tenant.get(pk, [])),
            billed=frozenset(billed.get(UsageParties(pk, pk), ())),
        )
        for pk, period in payer_periods.items()
    }
    pairs = _list_pairs(payer_periods, rated, stretches)
    tenants = Tenant.objects.in_bulk(users) if users else {}
    pair_terms = {
        parties: _paid_terms(tenant_terms, parties, of_tenant.get(parties.tenant, [])) for parties in pairs
    }
    needed = _needed_spans(payer_periods, payer_statements, pair_terms, of_tenant, tenants)
    supposed: list[BillingPeriod] = []
    if needed and lacking is Lacking.CREATED:
        billing_periods.ensure_spans(needed)
    elif needed and lacking is Lacking.SUPPOSED:
        stored_periods = {pk: tenant_term.periods for pk, tenant_term in tenant_terms.items()}
        supposed = billing_periods.missing_periods(needed, stored_periods)
    ended = _load_ended(payer_periods, pairs, supposed) if pairs else {}
    for parties in sorted(
        pairs & ended.keys(), key=lambda parties: (parties.payer, tenants[parties.tenant].slug)
    ):
        payer_statements[parties] = PayerStatement(
            ended[parties],
            pair_terms[parties],
            tenants[parties.tenant],
            payer_periods[parties.payer].start,
            frozenset(billed.get(parties, ())),
        )
    return payer_statements, supposed


def load_paid_by_others(
    periods: Sequence[BillingPeriod],
    inputs: StatementInputs,
    stretches: Sequence[Stretch] | None = None,
    besides: Sequence[BillingPeriod] = (),
) -> dict[UsageParties, PayerStatement]:
    """What others pay of the use of these tenants, of whom each has one of the periods, in that period or another."""
    tenant_periods = {period.tenant_id: period for period in periods}
    if stretches is None:
        stretches = third_party_payers.stretches_of(tenants=tenant_periods)
    of_tenant = third_party_payers.by_tenant(
        stretch for stretch in stretches if stretch.tenant in tenant_periods
    )
    tenant_terms = inputs.terms if of_tenant else {}
    tenants = Tenant.objects.in_bulk(of_tenant) if of_tenant else {}
    return {
        UsageParties(stretch.payer, tenant): PayerStatement(
            tenant_periods[tenant],
            _paid_terms(tenant_terms, UsageParties(stretch.payer, tenant), rows),
            tenants[tenant],
            tenant_periods[tenant].start,
        )
        for tenant, rows in of_tenant.items()
        for stretch in rows
        if any(
            period.tenant_id == tenant and stretch.overlaps(period.start, period.end)
            for period in (*periods, *besides)
        )
    }


def load_periods_of_users(
    parties: Iterable[UsageParties], periods: Sequence[BillingPeriod], supposed: Sequence[BillingPeriod]
) -> list[BillingPeriod]:
    """Of whom others pay for, the newest period that ended with each of these of who pays. One query, or none."""
    of_payer: dict[int, list[BillingPeriod]] = defaultdict(list)
    for period in periods:
        of_payer[period.tenant_id].append(period)
    pairs = [one for one in parties if one.payer != one.tenant and one.payer in of_payer]
    if not pairs:
        return []
    of_users = BillingPeriod.objects.filter(tenant__in={one.tenant for one in pairs})
    last = max(period.end for period in periods)
    of_user: dict[int, list[BillingPeriod]] = defaultdict(list)
    for period in sorted([*of_users.filter(end__lte=last), *supposed], key=attrgetter("end")):
        of_user[period.tenant_id].append(period)
    newest: dict[int, BillingPeriod] = {}
    for one in pairs:
        for paid in of_payer[one.payer]:
            ended = [period for period in of_user[one.tenant] if period.end <= paid.end]
            newest |= {period.pk: period for period in ended[-1:]}
    return list(newest.values())


def _list_pairs(
    payers: Collection[int], rated: Mapping[int, Sequence[RatedPeriod]], stretches: Iterable[Stretch]
) -> set[UsageParties]:
    """Of whose use one of them pays, or has paid."""
    pairs = {UsageParties(stretch.payer, stretch.tenant) for stretch in stretches if stretch.payer in payers}
    pairs |= {UsageParties(payer, row.tenant) for payer in payers for row in rated.get(payer, ())}
    return {parties for parties in pairs if parties.tenant != parties.payer}


def _load_billed_periods(
    payer_periods: Mapping[int, BillingPeriod], users: set[int]
) -> Mapping[UsageParties, set[int]]:
    """The users' periods of which terms of their plans stand on invoices. None is asked for where nobody pays."""
    period_ids: dict[UsageParties, set[int]] = defaultdict(set)
    if users:
        lines = InvoiceLine.objects.filter(
            tenant__in=payer_periods,
            service_period__tenant__in=users,
            invoice__state=InvoiceState.ISSUED,
            kind__in=list(TermKind),
        )
        columns = ("tenant", "service_period__tenant", "service_period")
        for payer, tenant, period in lines.order_by().values_list(*columns).distinct():
            period_ids[UsageParties(payer, tenant)].add(period)
    return period_ids


def _needed_spans(
    payer_periods: Mapping[int, BillingPeriod],
    own_statements: Mapping[UsageParties, PayerStatement],
    pair_terms: Mapping[UsageParties, Terms | None],
    stretches: Mapping[int, Sequence[Stretch]],
    tenants: Mapping[int, Tenant],
) -> list[tuple[Tenant, datetime, datetime]]:
    """From when until when periods have to be there, of each tenant once: for its terms, and where another pays."""
    reaches = [
        _needed_span(
            payer_statement.plan_terms.tenant, payer_statement.plan_terms, payer_periods[parties.payer]
        )
        for parties, payer_statement in own_statements.items()
        if payer_statement.plan_terms is not None
    ]
    reaches += [
        _needed_span(tenants[parties.tenant], plan_terms, payer_periods[parties.payer])
        for parties, plan_terms in pair_terms.items()
        if any(
            stretch.payer == parties.payer
            and stretch.overlaps(payer_periods[parties.payer].start, payer_periods[parties.payer].end)
            for stretch in stretches.get(parties.tenant, ())
        )
    ]
    spans: dict[int, tuple[Tenant, datetime, datetime]] = {}
    for tenant, since, until in reaches:
        _, first, last = spans.get(tenant.pk, (tenant, since, until))
        spans[tenant.pk] = (tenant, min(first, since), max(last, until))
    return list(spans.values())


def _needed_span(
    tenant: Tenant, plan_terms: Terms | None, period: BillingPeriod
) -> tuple[Tenant, datetime, datetime]:
    if plan_terms is None:
        return tenant, period.start, period.end
    until = period.end + timedelta(seconds=1) if plan_terms.in_advance else period.end
    return tenant, min(period.start, plan_terms.begins or period.start), until


def _load_ended(
    payer_periods: Mapping[int, BillingPeriod], pairs: set[UsageParties], supposed: Sequence[BillingPeriod]
) -> dict[UsageParties, BillingPeriod]:
    """The newest period of each that has ended with the payer's."""
    until = max(payer_periods[parties.payer].end for parties in pairs)
    stored_periods = BillingPeriod.objects.filter(
        tenant__in={parties.tenant for parties in pairs}, end__lte=until
    )
    newest = _newest_periods(
        payer_periods, pairs, [*stored_periods.filter(end__gt=until - AROUND), *supposed]
    )
    lacking = pairs - newest.keys()
    return newest | (_newest_periods(payer_periods, lacking, stored_periods) if lacking else {})


def _newest_periods(
    payer_periods: Mapping[int, BillingPeriod], pairs: set[UsageParties], periods: Iterable[BillingPeriod]
) -> dict[UsageParties, BillingPeriod]:
    by_tenant: dict[int, list[BillingPeriod]] = defaultdict(list)
    for period in sorted(periods, key=lambda period: period.start):
        by_tenant[period.tenant_id].append(period)
    newest = {}
    for parties in pairs:
        over = [
            period for period in by_tenant[parties.tenant] if period.end <= payer_periods[parties.payer].end
        ]
        if over:
            newest[parties] = over[-1]
    return newest


def _paid_terms(
    tenant_terms: Mapping[int, Terms], parties: UsageParties, stretches: Sequence[Stretch]
) -> Terms | None:
    payer = None if parties.payer == parties.tenant else parties.payer
    own = [stretch for stretch in stretches if stretch.tenant == parties.tenant]
    return terms.paid_by(
        {pk: tenant_terms[pk] for pk in (parties.tenant,) if pk in tenant_terms}, payer, own
    ).get(parties.tenant)
