"""Which versions of which plans a tenant was on when, and what they say beside their prices.

Only plans that say anything beside their prices are read: for the others a close asks one question more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from itertools import pairwise
from typing import Any

from billing.catalog import billing_periods, third_party_payers
from billing.catalog.billing_periods import Calendars
from billing.catalog.third_party_payers import Stretch
from billing.models import (
    Allowance,
    BillingPeriod,
    Commitment,
    Discount,
    Fee,
    Plan,
    Subscription,
)
from billing.rules.days import NEVER, Days
from billing.rules.period import Period
from billing.rules.statement_lines import TermKind
from portal.core.tenants.models import Tenant
from portal.prepared import instances, prepared_cursor
from portal.sql_files import Statements

sql = Statements(__file__, "terms.sql")

Named = Commitment | Discount | Fee
AnyTerm = Allowance | Named
KINDS: Mapping[str, type[AnyTerm]] = {
    "allowance": Allowance,
    "fee": Fee,
    "commitment": Commitment,
    "discount": Discount,
}
ByVersion = dict[int, list[AnyTerm]]
NamedKey = tuple[TermKind, int]
"""What a line refers to: a kind of terms, and the row."""


@dataclass(frozen=True, slots=True)
class Span:
    """The tenant was on the version during [since, until)."""

    version: int
    since: datetime
    until: datetime | None

    def seconds(self, start: datetime, end: datetime) -> int:
        """How many of [start, end) it holds."""
        low, high = max(start, self.since), end if self.until is None else min(end, self.until)
        return max(0, int((high - low).total_seconds()))


@dataclass(slots=True)
class Terms:
    """What one tenant's plans say beside their prices, by version."""

    tenant: Tenant
    days: Days
    periods: Sequence[BillingPeriod]  # that are kept, in order
    spans: list[Span] = field(default_factory=list)
    currencies: dict[int, str] = field(default_factory=dict)
    allowances: dict[int, list[Allowance]] = field(default_factory=dict)
    fees: dict[int, list[Fee]] = field(default_factory=dict)
    commitments: dict[int, list[Commitment]] = field(default_factory=dict)
    discounts: dict[int, list[Discount]] = field(default_factory=dict)

    def seconds(self, version: int, period: Period) -> int:
        """For how many seconds of the period the tenant was on the version."""
        return self._on(version, period.start, period.end)

    def seconds_in_force(self, row: AnyTerm, period: Period) -> int:
        """For how many of these the term holds too: the plan's own where none of the tenant's stands in its place."""
        seconds = 0
        for start, end in self._dated(row, period.start, period.end):
            seconds += self._on(row.version_id, start, end)
            if row.tenant_id is None:
                parts = [part for own in self._instead(row) for part in self._dated(own, start, end)]
                seconds -= sum(self._on(row.version_id, low, high) for low, high in parts)
        return seconds

    def _on(self, version: int, start: datetime, end: datetime) -> int:
        return sum(span.seconds(start, end) for span in self.spans if span.version == version)

    def _dated(self, row: AnyTerm, start: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
        """The parts of [start, end) that its dates leave."""
        for low, high in self.days.between(row.valid_from, row.valid_until):
            if max(low, start) < min(high, end):
                yield max(low, start), min(high, end)

    def _instead(self, row: AnyTerm) -> Iterator[AnyTerm]:
        """The tenant's own that stand in the place of the plan's: of its name; of a commitment any, as there is one."""
        for own in self._of_kind(row)[row.version_id]:
            if own.tenant_id is not None and (isinstance(row, Commitment) or own.name == row.name):
                yield own

    def _of_kind(self, row: AnyTerm) -> Mapping[int, Sequence[AnyTerm]]:
        if isinstance(row, Allowance):
            return self.allowances
        if isinstance(row, Fee):
            return self.fees
        return self.commitments if isinstance(row, Commitment) else self.discounts

    def during(self, times: Sequence[tuple[datetime, datetime | None]]) -> Terms:
        """The same at these times alone, each [since, until): what somebody owes who pays then."""
        spans = []
        for span in self.spans:
            for since, until in times:
                ends = [end for end in (span.until, until) if end is not None]
                low, high = max(span.since, since), min(ends, default=None)
                if high is None or low < high:
                    spans.append(Span(span.version, low, high))
        return replace(self, spans=spans)

    def touches(self, start: datetime, end: datetime) -> bool:
        """Whether any of it holds at some second of [start, end)."""
        return any(span.seconds(start, end) for span in self.spans)

    def by_key(self) -> dict[NamedKey, Named]:
        """What lines state, by what they refer to."""
        terms: dict[NamedKey, Named] = {}
        for kind, table in (
            (TermKind.FEE, self.fees),
            (TermKind.COMMITMENT, self.commitments),
            (TermKind.DISCOUNT, self.discounts),
        ):
            for rows in table.values():
                terms |= {(kind, row.pk): row for row in rows}
        return terms

    @property
    def begins(self) -> datetime | None:
        """Since when something is owed whether or not anything is used; None where nothing ever is."""
        starts = []
        for span in self.spans:
            flat: list[AnyTerm] = [*self.fees[span.version], *self.commitments[span.version]]
            for row in flat:
                end = span.until or NEVER
                starts += [low for low, _ in self._dated(row, span.since, end)][:1]
        return min(starts, default=None)

    @property
    def in_advance(self) -> bool:
        """Whether any fee is billed before its period."""
        return any(fee.in_advance for fees in self.fees.values() for fee in fees)


def paid_by(
    terms: Mapping[int, Terms], payer: int | None, stretches: Iterable[Stretch]
) -> Mapping[int, Terms]:
    """The same for the time that `payer` paid; None: that they paid themselves. `stretches` are all of theirs."""
    by_tenant = third_party_payers.by_tenant(stretches)
    return {
        pk: tenant_terms.during(third_party_payers.time_of(payer, by_tenant[pk]))
        if pk in by_tenant
        else tenant_terms
        for pk, tenant_terms in terms.items()
        if payer is None or pk in by_tenant
    }


def is_by_statement(tenant: Tenant) -> bool:
    """Whether prices of single units do not tell all: no other tenant has terms or is paid for. One query."""
    with prepared_cursor() as cursor:
        cursor.execute(sql.BY_STATEMENT, {"tenant": tenant.pk})
        return bool(cursor.fetchone()[0])


def load_named(keys: Iterable[NamedKey]) -> dict[NamedKey, Named]:
    """Terms that lines refer to, whether or not they hold for anybody. One query a kind, none without keys."""
    ids: dict[TermKind, list[int]] = defaultdict(list)
    for kind, pk in keys:
        ids[kind].append(pk)
    models: Mapping[TermKind, type[Named]] = {
        TermKind.FEE: Fee,
        TermKind.COMMITMENT: Commitment,
        TermKind.DISCOUNT: Discount,
    }
    return {
        (kind, pk): row
        for kind, own in ids.items()
        for pk, row in models[kind]._default_manager.in_bulk(own).items()
    }


def of_tenants(ids: Iterable[int], calendar: Calendars | None = None) -> Mapping[int, Terms]:
    """By tenant the terms of all plans that it was ever on; nothing for those whose plans say none.

    Two queries; one where all plans have prices alone, or where `calendar` has the periods of all of them.
    """
    subscribed, terms_by_model = _load_subscribed(ids)
    if not subscribed:
        return {}
    tenants = {tenant.pk for _, _, tenant, *_ in subscribed}
    stored_periods = (
        calendar if calendar and calendar.keys() >= tenants else billing_periods.list_kept(tenants)
    )
    by_tenant: dict[int, Terms] = {}
    for subscription, plan, tenant, versions, begins in subscribed:
        periods = stored_periods[tenant.pk]
        days = billing_periods.days_by(tenant.zone, periods)
        terms = by_tenant.setdefault(tenant.pk, Terms(tenant, days, periods))
        spans = _spans(subscription, versions, begins, days)
        terms.spans += spans
        for pk in {span.version for span in spans}:
            terms.currencies[pk] = plan.currency
            terms.allowances[pk] = _for(terms_by_model[Allowance], pk, tenant)
            terms.fees[pk] = _for(terms_by_model[Fee], pk, tenant)
            terms.commitments[pk] = _for(terms_by_model[Commitment], pk, tenant)
            terms.discounts[pk] = _for(terms_by_model[Discount], pk, tenant)
    return by_tenant


Subscribed = tuple[Subscription, Plan, Tenant, Sequence[int], Sequence[date]]
"""With the versions of the plan, and the days that they begin on."""


def _load_subscribed(ids: Iterable[int]) -> tuple[list[Subscribed], Mapping[type, ByVersion]]:
    """The subscriptions, and by kind and version what their plans say. One query."""
    subscribed: dict[int, Subscribed] = {}
    terms_by_model: dict[type, ByVersion] = {model: defaultdict(list) for model in KINDS.values()}
    with prepared_cursor() as cursor:
        cursor.execute(sql.SUBSCRIBED, {"tenants": sorted({*ids})})
        columns = [column.name for column in cursor.description]
        for subscription, plan, tenant, versions, begins, kind, *term in instances(
            cursor, Subscription, Plan, Tenant
        ):
            subscribed.setdefault(subscription.pk, (subscription, plan, tenant, versions, begins))
            if kind is not None:
                model, named = KINDS[kind], dict(zip(columns[-len(term) :], term, strict=True))
                values = {field.attname: named[field.attname] for field in model._meta.concrete_fields}
                terms_by_model[model][values["version_id"]].append(model(**values))
    return list(subscribed.values()), terms_by_model


def _for(by_version: Mapping[int, Sequence[Any]], version: int, tenant: Tenant) -> list[Any]:
    """What the version says to the tenant: to all, and to it alone."""
    return [row for row in by_version.get(version, ()) if row.tenant_id in {None, tenant.pk}]


def _spans(
    subscription: Subscription, versions: Sequence[int], begins: Sequence[date], days: Days
) -> list[Span]:
    """Each version from its day's midnight until the next one's, while subscribed."""
    spans = []
    for version, (first, last) in zip(versions, pairwise([*begins, None]), strict=True):
        for low, high in days.between(first, last):
            since, until = max(low, subscription.since), min(high, subscription.until or NEVER)
            if since < until:
                spans.append(Span(version, since, None if until == NEVER else until))
    return spans
