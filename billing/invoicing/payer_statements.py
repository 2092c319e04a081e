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
from billing.catalog.billing_periods import Calendars, Lacking
from billing.catalog.terms import Terms
from billing.catalog.third_party_payers import Stretch
from billing.invoicing.close_inputs import RatedPeriod
from billing.invoicing.statement_inputs import StatementInputs
from billing.invoicing.statement_rows import UsageParties
from billing.models import BillingPeriod, Payer
from portal.core.tenants.models import Tenant


@dataclass(frozen=True, slots=True)
class PayerStatement:
    """One tenant's use that one tenant pays."""

    period: BillingPeriod  # of who uses: what ends later is not billed yet
    plan_terms: Terms | None  # for the time that is paid
    user: Tenant | None = None  # where that is another
    begins: datetime | None = None  # the payer's period then: what ended before is a correction


def load_payer_statements(
    periods: Sequence[BillingPeriod],
    rated: Mapping[int, Sequence[RatedPeriod]],
    inputs: StatementInputs,
    *,
    lacking: Lacking,
) -> tuple[dict[UsageParties, PayerStatement], list[BillingPeriod]]:
    """Every tenant's own book, of whom each has one of the periods, and behind them those of whom they pay for.

    Beside them the periods that are supposed to be there: see `Lacking`. The queries of `inputs`; some more where
    periods are made.
    """
    payer_periods = {period.tenant_id: period for period in periods}
    of_tenant = third_party_payers.by_tenant(inputs.stretches)
    tenants = {row.tenant_id: row.tenant for row in inputs.payers}
    pairs = _list_pairs(payer_periods, rated, inputs.payers)
    payer_statements = {
        UsageParties(pk, pk): PayerStatement(
            period,
            _paid_terms(inputs.terms, UsageParties(pk, pk), of_tenant.get(pk, [])),
        )
        for pk, period in payer_periods.items()
    }
    pair_terms = {
        parties: _paid_terms(inputs.terms, parties, of_tenant.get(parties.tenant, [])) for parties in pairs
    }
    needed = _needed_spans(payer_periods, payer_statements, pair_terms, of_tenant, tenants)
    supposed: list[BillingPeriod] = []
    if needed and lacking is Lacking.CREATED:
        billing_periods.ensure_spans(needed)
        inputs.reload_calendars()
    elif needed and lacking is Lacking.SUPPOSED:
        supposed = billing_periods.missing_periods(needed, inputs.calendars)
    ended = _find_ended(payer_periods, pairs, supposed, inputs.calendars)
    for parties in sorted(
        pairs & ended.keys(), key=lambda parties: (parties.payer, tenants[parties.tenant].slug)
    ):
        payer_statements[parties] = PayerStatement(
            ended[parties],
            pair_terms[parties],
            tenants[parties.tenant],
            payer_periods[parties.payer].start,
        )
    return payer_statements, supposed


def list_paid_by_others(
    periods: Sequence[BillingPeriod],
    inputs: StatementInputs,
    besides: Sequence[BillingPeriod] = (),
) -> dict[UsageParties, PayerStatement]:
    """What others pay of the use of these tenants, of whom each has one of the periods, in that period or another."""
    tenant_periods = {period.tenant_id: period for period in periods}
    of_tenant = third_party_payers.by_tenant(
        stretch for stretch in inputs.stretches if stretch.tenant in tenant_periods
    )
    tenants = {row.tenant_id: row.tenant for row in inputs.payers}
    return {
        UsageParties(stretch.payer, tenant): PayerStatement(
            tenant_periods[tenant],
            _paid_terms(inputs.terms, UsageParties(stretch.payer, tenant), rows),
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


def list_periods_of_users(
    parties: Iterable[UsageParties],
    periods: Sequence[BillingPeriod],
    supposed: Sequence[BillingPeriod],
    calendars: Calendars,
) -> list[BillingPeriod]:
    """Of whom others pay for, the newest period that ended with each of these of who pays."""
    of_payer: dict[int, list[BillingPeriod]] = defaultdict(list)
    for period in periods:
        of_payer[period.tenant_id].append(period)
    newest: dict[int, BillingPeriod] = {}
    for one in parties:
        if one.payer != one.tenant and one.payer in of_payer:
            of_user = list_with_supposed(one.tenant, supposed, calendars)
            for paid in of_payer[one.payer]:
                ended = [period for period in of_user if period.end <= paid.end]
                newest |= {period.pk: period for period in ended[-1:]}
    return list(newest.values())


def list_with_supposed(
    tenant: int, supposed: Sequence[BillingPeriod], calendars: Calendars
) -> list[BillingPeriod]:
    """The tenant's periods in order, with those that are only supposed."""
    own = [*calendars[tenant], *(period for period in supposed if period.tenant_id == tenant)]
    return sorted(own, key=attrgetter("start"))


def _list_pairs(
    payers: Collection[int], rated: Mapping[int, Sequence[RatedPeriod]], rows: Iterable[Payer]
) -> set[UsageParties]:
    """Of whose use one of them pays, or has paid; also by what was taken back whole: something may be billed of it."""
    pairs = {UsageParties(row.payer_id, row.tenant_id) for row in rows if row.payer_id in payers}
    pairs |= {UsageParties(payer, row.tenant) for payer in payers for row in rated.get(payer, ())}
    return {parties for parties in pairs if parties.tenant != parties.payer}


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


def _find_ended(
    payer_periods: Mapping[int, BillingPeriod],
    pairs: Iterable[UsageParties],
    supposed: Sequence[BillingPeriod],
    calendars: Calendars,
) -> dict[UsageParties, BillingPeriod]:
    """The newest period of each that has ended with the payer's."""
    ended = {}
    for parties in pairs:
        end = payer_periods[parties.payer].end
        periods = list_with_supposed(parties.tenant, supposed, calendars)
        if over := [period for period in periods if period.end <= end]:
            ended[parties] = over[-1]
    return ended


def _paid_terms(
    tenant_terms: Mapping[int, Terms], parties: UsageParties, stretches: Sequence[Stretch]
) -> Terms | None:
    payer = None if parties.payer == parties.tenant else parties.payer
    own = [stretch for stretch in stretches if stretch.tenant == parties.tenant]
    return terms.paid_by(
        {pk: tenant_terms[pk] for pk in (parties.tenant,) if pk in tenant_terms}, payer, own
    ).get(parties.tenant)
