"""What a tenant's statement says, read from the totals that rating keeps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from django.db.models import Q, Sum

from billing.catalog import allowances, billing_periods, meters, terms
from billing.catalog.billing_periods import Lacking
from billing.catalog.terms import Named, NamedKey
from billing.invoicing import charges, close_inputs, payer_statements, statement_periods
from billing.invoicing import statement_rows as rows
from billing.invoicing.charges import ChargeInputs
from billing.invoicing.close_inputs import RatedPeriod
from billing.invoicing.messages import SENTENCES
from billing.invoicing.statement_inputs import StatementInputs
from billing.invoicing.statement_periods import Batch
from billing.invoicing.statement_rows import IssuedLine, Total, UsageParties
from billing.models import BillingPeriod, PeriodTotal, Price, Resource, Verdict
from billing.rules import period as rules
from billing.rules.money import rounded_text
from billing.rules.statement_lines import Billed, Key, Line, LineKey, Owed, TermKey, statement
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
    terms: Mapping[NamedKey, Named] = field(default_factory=dict)
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


Outcomes = dict[int, Statement | MixedCurrenciesError]
"""By tenant."""
PaidByOthers = dict[int, list[tuple[Tenant, Statement]]]
"""By tenant who else pays for what it used."""


def make_statements(
    periods: Sequence[BillingPeriod],
    rated: Mapping[int, Sequence[RatedPeriod]],
    *,
    lacking: Lacking = Lacking.CREATED,
    besides: Sequence[BillingPeriod] = (),
    inputs: StatementInputs | None = None,
) -> Outcomes:
    """As `make_statement`, by tenant, of whom each has one of the periods; `rated` is `load_rated_periods` of them.

    What is `owed` of earlier periods that are named `besides` is told, too, whether or not they have changed; of whom
    they pay for, that of the last period of theirs that ended with each. Five queries, however many they are and
    whoever pays; one more where lines name projects without use. `lacking` says what becomes of periods in which terms
    of plans hold and that there are not yet.
    """
    inputs = inputs or StatementInputs(frozenset(period.tenant_id for period in periods))
    batch = _load_batch(periods, rated, lacking, besides, inputs)
    (outcomes,) = _compute_statements([batch], inputs)
    return {period.tenant_id: _add_paid(period.tenant_id, outcomes) for period in periods}


class WholeStatements(NamedTuple):
    """Of the periods; who else pays for what was used in them; and of the periods before."""

    outcomes: Outcomes
    by_others: PaidByOthers
    before: Outcomes


def make_whole_statements(
    periods: Sequence[BillingPeriod],
    rated: Mapping[int, Sequence[RatedPeriod]],
    *,
    lacking: Lacking,
    besides: Sequence[BillingPeriod] = (),
    before: Sequence[BillingPeriod] = (),
    inputs: StatementInputs | None = None,
) -> WholeStatements:
    """`make_statements`, and who else pays for what the tenants used in these periods or those `besides`.

    What others' invoices hold of it already is not looked at. And the statements of earlier periods of the same
    tenants, `before` these. As many queries.
    """
    inputs = inputs or StatementInputs(frozenset(period.tenant_id for period in periods))
    batch = _load_batch(periods, rated, lacking, besides, inputs)
    books = payer_statements.list_paid_by_others(periods, inputs, besides)
    by_others = Batch(books, {}, [], besides, looks_back=False)
    ends = {period.tenant_id: period.end for period in before}
    rated_before = {pk: [row for row in rated.get(pk, ()) if row.end <= end] for pk, end in ends.items()}
    earlier = _load_batch(before, rated_before, lacking, (), inputs)
    outcomes, paid, passed = _compute_statements([batch, by_others, earlier], inputs)
    payers = {row.payer_id: row.payer for row in inputs.payers}
    paid_by_others: PaidByOthers = defaultdict(list)
    for parties, outcome in paid.items():
        if not isinstance(outcome, MixedCurrenciesError):
            paid_by_others[parties.tenant].append((payers[parties.payer], outcome))
    return WholeStatements(
        {period.tenant_id: _add_paid(period.tenant_id, outcomes) for period in periods},
        paid_by_others,
        {period.tenant_id: _add_paid(period.tenant_id, passed) for period in before},
    )


def _load_batch(
    periods: Sequence[BillingPeriod],
    rated: Mapping[int, Sequence[RatedPeriod]],
    lacking: Lacking,
    besides: Sequence[BillingPeriod],
    inputs: StatementInputs,
) -> Batch:
    books, supposed = payer_statements.load_payer_statements(periods, rated, inputs, lacking=lacking)
    of_users = payer_statements.list_periods_of_users(books, besides, supposed, inputs.calendars)
    return Batch(books, rated, supposed, [*besides, *of_users])


def _compute_statements(
    batches: Sequence[Batch], inputs: StatementInputs
) -> list[dict[UsageParties, Statement | MixedCurrenciesError]]:
    """Of each batch, by whose use it is, and who pays. All is read at once."""
    touched, lines = statement_periods.load_touched(batches, inputs)
    totals = rows.load_totals(statement_periods.merged(touched))
    names = rows.load_names(totals, lines)
    prices = inputs.load_prices({row.price_id for row in totals} | {line.price_id for line in lines})
    return [
        {
            parties: _compute_statement(
                _Context(book, parties, own[parties], names[parties.tenant], prices),
                own_totals[parties],
                own_lines[parties],
                max((row.newest for row in batch.rated.get(parties.payer, [])), default=0),
            )
            for parties, book in batch.books.items()
        }
        for batch, own in zip(batches, touched, strict=True)
        for own_totals, own_lines in [(rows.group_by_parties(totals, own), rows.group_by_parties(lines, own))]
    ]


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


@dataclass(frozen=True, slots=True)
class _Context:
    """Whose statement it is, and what its rows refer to."""

    payer_statement: payer_statements.PayerStatement
    parties: UsageParties
    touched: Sequence[BillingPeriod]
    names: Mapping[int, str]
    prices: Mapping[int, Price]


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
        _load_terms(book, lines_by_currency),
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


def _load_terms(
    book: payer_statements.PayerStatement, lines_by_currency: Mapping[str, Sequence[Line]]
) -> Mapping[NamedKey, Named]:
    """Of the plans, and those that are taken back, which its plans may have no longer."""
    own = book.plan_terms.by_key() if book.plan_terms else {}
    stated = {
        (line.key.kind, line.key.term_id)
        for lines in lines_by_currency.values()
        for line in lines
        if isinstance(line.key, TermKey)
    }
    return own | terms.load_named(stated - own.keys())


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
        currency: [_as_correction(line, line.key.service.end <= begins) for line in lines]
        for currency, lines in lines_by_currency.items()
    }


def _as_correction(line: Line, correction: bool) -> Line:
    return replace(line, correction=correction, first_charge=correction and line.first_charge)


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
