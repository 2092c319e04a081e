"""What a tenant's statement says, read from the totals that rating keeps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from operator import attrgetter

from django.db.models import Q, Sum

from billing.catalog import allowances, billing_periods, meters
from billing.catalog.billing_periods import Lacking
from billing.catalog.terms import Named
from billing.catalog.third_party_payers import Stretch
from billing.invoicing import charges, close_inputs, payer_statements
from billing.invoicing import statement_rows as rows
from billing.invoicing.charges import ChargeInputs
from billing.invoicing.close_inputs import RatedPeriod
from billing.invoicing.messages import SENTENCES
from billing.invoicing.statement_inputs import StatementInputs
from billing.invoicing.statement_rows import IssuedLine, R, Total, UsageParties
from billing.models import BillingPeriod, PeriodTotal, Price, Resource, Verdict
from billing.rules import period as rules
from billing.rules.money import rounded_text
from billing.rules.statement_lines import Billed, Key, Line, LineKey, Owed, TermKind, statement
from portal.core.tenants.models import Tenant
from portal.errors import CodedError


@dataclass(frozen=True, slots=True)
class Statement:
    """The lines to bill at a period's end and how far into rated usage they reach.

    What the lines name by key stands beside them: all of their prices, projects and periods.
    """

    lines: list[Line]
    currency: str
    rated_through: int
    prices: Mapping[int, Price]
    projects: Mapping[str, int]
    periods: Mapping[rules.Period, BillingPeriod]
    terms: Mapping[tuple[TermKind, int], Named] = field(default_factory=dict)
    # Billed or not, of all periods that were looked at.
    owed: Mapping[Key, Owed] = field(default_factory=dict)
    charge_inputs: ChargeInputs | None = None  # that it was made of
    others: tuple[Statement, ...] = ()  # what is to be billed in other currencies than this one's
    # What others used that the tenant pays for, each by whom and in one currency.
    paid: tuple[Statement, ...] = ()
    user: Tenant | None = None  # whose use it is, where another pays


_OF: dict[str, str] = {Resource.MEMORY: " of memory", Resource.GPU_MEMORY: " of GPU memory"}
"""Two resources are counted in the same unit."""


@dataclass(frozen=True, slots=True)
class Unpriced:
    """Charged usage that no price covers."""

    resource: str
    gpu_model: str
    quantity: Decimal  # hours, or units of a declared meter: rounded, to be read by people
    unit: str  # `GPU-hours`, `million tokens`

    @property
    def text(self) -> str:
        """`5.00 GPU-hours on a100`, `2.00 GiB-hours of memory`, `12.50 million tokens (direction=input)`"""
        what = f" on {self.gpu_model}" if self.resource in Resource.values else f" ({self.gpu_model})"
        return f"{self.quantity} {self.unit}{_OF.get(self.resource, '')}{what if self.gpu_model else ''}"


class MixedCurrenciesError(CodedError):
    """What a period itself costs is in two currencies, so no invoice is the one of the period."""

    sentences = SENTENCES


def list_unpriced(*, tenant: Tenant, period: BillingPeriod) -> list[Unpriced]:
    """Usage up to the period's end that blocks its close."""
    totals = (
        PeriodTotal.objects.filter(
            Q(payer=None, tenant=tenant) | Q(payer=tenant),
            period__end__lte=period.end,
            verdict=Verdict.UNPRICED,
        )
        .values("resource", "gpu_model", "share_den")
        .annotate(sum=Sum("units"))
        .filter(sum__gt=0)
        .order_by("resource", "gpu_model", "share_den")
    )
    rows = list(totals)
    units = meters.units_of([row["resource"] for row in rows])
    return [
        Unpriced(
            row["resource"],
            row["gpu_model"],
            Decimal(rounded_text(Fraction(int(row["sum"]), row["share_den"] * 3600), 2, fixed=True)),
            units[row["resource"]],
        )
        for row in rows
    ]


def make_statement(*, tenant: Tenant, period: BillingPeriod) -> Statement:
    """All that is owed up to the period's end and not billed yet, corrections of earlier periods included.

    A pure function of the totals and of the lines already issued. Raises MixedCurrenciesError."""
    outcome = make_statements([period], close_inputs.load_rated_periods([period]))[tenant.pk]
    if isinstance(outcome, MixedCurrenciesError):
        raise outcome
    return outcome


def make_statements(
    periods: Sequence[BillingPeriod],
    rated: Mapping[int, Sequence[RatedPeriod]],
    *,
    lacking: Lacking = Lacking.CREATED,
    besides: Sequence[BillingPeriod] = (),
    stretches: Sequence[Stretch] | None = None,
    inputs: StatementInputs | None = None,
) -> dict[int, Statement | MixedCurrenciesError]:
    """As `make_statement`, by tenant, of whom each has one of the periods; `rated` is `load_rated_periods` of them.

    What is `owed` of earlier periods that are named `besides` is told, too, whether or not they have changed; of whom
    they pay for, that of the last period of theirs that ended with each. Six queries at most, however many they are,
    where plans have prices alone and nobody pays for another. `lacking` says what becomes of periods in which terms of
    plans hold and that there are not yet; `stretches`: who paid for whom, of all of them, where that is read already.
    """
    inputs = inputs or StatementInputs(frozenset(period.tenant_id for period in periods))
    books, supposed = payer_statements.load_payer_statements(
        periods, rated, inputs, lacking=lacking, stretches=stretches
    )
    if besides:
        besides = [*besides, *payer_statements.load_periods_of_users(books, besides, supposed)]
    outcomes = _compute_statements(books, rated, supposed, inputs, besides, made=lacking is Lacking.CREATED)
    return {period.tenant_id: _add_paid(period.tenant_id, outcomes) for period in periods}


def load_paid_statements(
    periods: Sequence[BillingPeriod],
    stretches: Sequence[Stretch] | None = None,
    inputs: StatementInputs | None = None,
    besides: Sequence[BillingPeriod] = (),
) -> dict[int, list[tuple[Tenant, Statement]]]:
    """By tenant, of whom each has one of the periods, who else pays for what it used in it or one of those `besides`.

    What their invoices hold of it already is not looked at. One query where nobody does; none with `stretches`.
    """
    inputs = inputs or StatementInputs(frozenset(period.tenant_id for period in periods))
    books = payer_statements.load_paid_by_others(periods, inputs, stretches, besides)
    paid_statements: dict[int, list[tuple[Tenant, Statement]]] = defaultdict(list)
    if books:
        tenants = Tenant.objects.in_bulk({parties.payer for parties in books})
        for parties, outcome in _compute_statements(books, {}, [], inputs, besides).items():
            if not isinstance(outcome, MixedCurrenciesError):
                paid_statements[parties.tenant].append((tenants[parties.payer], outcome))
    return paid_statements


def _compute_statements(
    books: Mapping[UsageParties, payer_statements.PayerStatement],
    rated: Mapping[int, Sequence[RatedPeriod]],
    supposed: Sequence[BillingPeriod],
    inputs: StatementInputs,
    besides: Sequence[BillingPeriod] = (),
    *,
    made: bool = False,
) -> dict[UsageParties, Statement | MixedCurrenciesError]:
    """By whose use it is, and who pays. `supposed`: periods that are not kept, and count as if they were.

    `made`: some may be kept since the terms of plans were read.
    """
    news = {
        parties: _changed_periods(payer_statement.period, parties, rated.get(parties.payer, []))
        for parties, payer_statement in books.items()
    }
    stored_periods = (book.plan_terms.periods for book in books.values() if book.plan_terms is not None)
    earlier = {period.pk: period for periods in stored_periods for period in periods}
    earlier |= BillingPeriod.objects.in_bulk({pk for ids in news.values() for pk in ids} - earlier.keys())
    more: dict[int, list[BillingPeriod]] = defaultdict(list)
    for period in besides:
        more[period.tenant_id].append(period)
    touched = {
        parties: [*(earlier[pk] for pk in news[parties]), *more[parties.tenant], payer_statement.period]
        for parties, payer_statement in books.items()
    }
    for parties, periods in _load_term_periods(books, touched, supposed, made=made).items():
        touched[parties] = [*periods, books[parties].period]  # which may be supposed by the caller alone
    totals, lines = rows.load_totals(touched), rows.load_lines(touched)
    names = rows.load_names(totals, lines)
    prices = inputs.load_prices({row.price_id for row in totals} | {line.price_id for line in lines})
    own_totals, own_lines = _group_by_parties(totals), _group_by_parties(lines)
    return {
        parties: _compute_statement(
            _Context(payer_statement, parties, touched[parties], names[parties.tenant], prices),
            own_totals[parties],
            own_lines[parties],
            max((row.newest for row in rated.get(parties.payer, [])), default=0),
        )
        for parties, payer_statement in books.items()
    }


def _add_paid(
    payer: int, outcomes: Mapping[UsageParties, Statement | MixedCurrenciesError]
) -> Statement | MixedCurrenciesError:
    """What the tenant used, with what it pays for others beside it."""
    own = outcomes[UsageParties(payer, payer)]
    if isinstance(own, MixedCurrenciesError):
        return own
    paid: list[Statement] = []
    for parties, outcome in outcomes.items():
        if parties.payer != payer or parties.tenant == payer:
            continue
        if isinstance(outcome, MixedCurrenciesError):
            return outcome
        paid += [outcome, *outcome.others]
    currency = own.currency or next(
        (statement_paid.currency for statement_paid in paid if statement_paid.lines), ""
    )
    return replace(own, currency=currency, paid=tuple(paid))


def _load_term_periods(
    books: Mapping[UsageParties, payer_statements.PayerStatement],
    touched: Mapping[UsageParties, Sequence[BillingPeriod]],
    supposed: Sequence[BillingPeriod],
    *,
    made: bool,
) -> dict[UsageParties, list[BillingPeriod]]:
    """Every period in which a term of its plans holds, and the one behind where a fee is billed in advance.

    Terms can be given for what is past, as a subscription can begin there: all of it is compared. What somebody was
    billed for another's terms is looked at again, too, since who pays can be told late.
    """
    terms_by_who = {
        parties: (period_of_tenant.plan_terms, period_of_tenant.period)
        for parties, period_of_tenant in books.items()
        if period_of_tenant.plan_terms is not None
    }
    if not terms_by_who:
        return {}
    own_periods = {parties.tenant: plan_terms.periods for parties, (plan_terms, _) in terms_by_who.items()}
    by_tenant = {
        tenant: sorted([*own, *(one for one in supposed if one.tenant_id == tenant)], key=attrgetter("start"))
        for tenant, own in (own_periods | (billing_periods.list_kept(own_periods) if made else {})).items()
    }
    term_periods: dict[UsageParties, list[BillingPeriod]] = {}
    for parties, (plan_terms, period) in terms_by_who.items():
        last = (
            period.end if plan_terms.in_advance else period.start
        )  # the next one begins where this one ends
        period_ids = {period_of_tenant.pk for period_of_tenant in touched[parties]} | books[parties].billed
        term_periods[parties] = [
            period_of_tenant
            for period_of_tenant in by_tenant[parties.tenant]
            if period_of_tenant.start <= last
            and (
                period_of_tenant.pk in period_ids
                or plan_terms.touches(period_of_tenant.start, period_of_tenant.end)
            )
        ]
    return term_periods


def _changed_periods(period: BillingPeriod, parties: UsageParties, rated: Sequence[RatedPeriod]) -> list[int]:
    """The earlier periods that were rated differently since an invoice last covered them, in order."""
    return [
        rated_period.period
        for rated_period in sorted(rated, key=lambda rated_period: rated_period.start)
        if rated_period.tenant == parties.tenant
        and rated_period.period != period.pk
        and rated_period.has_changed
    ]


@dataclass(frozen=True, slots=True)
class _Context:
    """Whose statement it is, and what its rows refer to."""

    payer_statement: payer_statements.PayerStatement
    parties: UsageParties
    touched: Sequence[BillingPeriod]
    names: Mapping[int, str]
    prices: Mapping[int, Price]


def _group_by_parties(entries: Iterable[R]) -> Mapping[UsageParties, list[R]]:
    groups: dict[UsageParties, list[R]] = defaultdict(list)
    for row in entries:
        groups[row.parties].append(row)
    return groups


def _compute_statement(
    context: _Context, totals: Sequence[Total], lines: Sequence[IssuedLine], through: int
) -> Statement | MixedCurrenciesError:
    book = context.payer_statement
    rules_of = {
        service_period.pk: billing_periods.as_rule(service_period) for service_period in context.touched
    }
    own = rules_of[book.period.pk]
    billed = rows.sum_billed(lines, context.names, rules_of)
    books = _make_inputs(context, totals, billed, rules_of)
    owed = charges.calculate_charges(books)
    lines_by_currency = _split_currencies(owed, billed, own, context.prices)
    if book.begins is not None:
        lines_by_currency = _mark_corrections(lines_by_currency, book.begins)
    billing = [currency for currency, lines in lines_by_currency.items() if lines]
    of_period = [
        currency
        for currency in billing
        if any(_is_of_period(line, own) for line in lines_by_currency[currency])
    ]
    if len(of_period) > 1:
        return MixedCurrenciesError("mixed-currencies", currencies=" and ".join(sorted(of_period)))
    leading = next(iter([*of_period, *billing, *lines_by_currency]), "")
    leading_statement = Statement(
        lines_by_currency.get(leading, []),
        leading,
        through,
        context.prices,
        {name: pk for pk, name in context.names.items()},
        {rules_of[service_period.pk]: service_period for service_period in context.touched},
        book.plan_terms.by_key() if book.plan_terms else {},
        owed,
        books,
        user=book.user,
    )
    other_currencies = (currency for currency in billing if currency != leading)
    return replace(
        leading_statement,
        others=tuple(
            replace(leading_statement, lines=lines_by_currency[service_period], currency=service_period)
            for service_period in other_currencies
        ),
    )


def _make_inputs(
    context: _Context,
    totals: Sequence[Total],
    billed: Mapping[Key, Billed],
    rules_of: Mapping[int, rules.Period],
) -> ChargeInputs:
    """What is owed for what was used up to the end of the period, made ready to be reckoned."""
    own = rules_of[context.payer_statement.period.pk]
    periods = {rules_of[service_period.pk]: service_period for service_period in context.touched}
    payer = None if context.payer_statement.user is None else context.parties.payer
    due = [row for row in totals if rules_of[row.period] <= own]
    return ChargeInputs(
        used=rows.sum_usage(due, context.prices, rules_of),
        billed=billed,
        prices=context.prices,
        period=own,
        periods=sorted(periods),
        terms=context.payer_statement.plan_terms,
        in_order=lambda period, prices, available: allowances.in_order(
            periods[period], prices, available, payer=payer
        ),
    )


def _mark_corrections(lines_by_currency: Mapping[str, list[Line]], begins: datetime) -> dict[str, list[Line]]:
    """What another used is no correction where its period ended within the payer's."""
    return {
        currency: [replace(line, correction=line.key.service.end <= begins) for line in lines]
        for currency, lines in lines_by_currency.items()
    }


def _is_of_period(line: Line, own: rules.Period) -> bool:
    return line.key.service == own and not line.correction


def _split_currencies(
    owed: Mapping[Key, Owed], billed: Mapping[Key, Billed], period: rules.Period, prices: Mapping[int, Price]
) -> dict[str, list[Line]]:
    """By currency the lines that are to be billed in it."""
    currencies = {key: entry.amount.currency for key, entry in billed.items()}
    for key, entry in owed.items():
        if isinstance(key, LineKey):
            currencies[key] = prices[key.price_id].version.plan.currency
        elif entry.share is not None:
            currencies[key] = entry.share.amount.currency
    return {
        currency: statement(
            owed={key: entry for key, entry in owed.items() if currencies[key] == currency},
            billed={key: entry for key, entry in billed.items() if currencies[key] == currency},
            period=period,
            currency=currency,
        )
        for currency in sorted(set(currencies.values()))
    }
