"""What an open period has come to so far, and what it will: by the statement that its close would make now.

Nothing here is written. Periods that a close would make, as where a fee is billed in advance, are only supposed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction

from django.utils.translation import gettext, gettext_noop

from billing.catalog import billing_periods, third_party_payers
from billing.catalog.billing_periods import Lacking
from billing.invoicing import (
    charges,
    close_inputs,
    corrections,
    earlier_charges,
    invoice_drafts,
    manual_lines,
    statements,
)
from billing.invoicing.charges import ChargeInputs
from billing.invoicing.statement_inputs import StatementInputs
from billing.models import BillingPeriod, LineKind, ManualLine, Price
from billing.queries.costs import per_currency
from billing.rules.meters import Meter
from billing.rules.money import Money
from billing.rules.period import Period
from billing.rules.statement_lines import Key, Line, LineKey, Owed, TermKey, TermKind
from portal.core.tenants.models import Corrections, Tenant
from portal.prepared import prepared_cursor
from portal.sql_files import Statements

sql = Statements(__file__, "accrued_charges.sql")

EARLIER, CREDITED, AHEAD, BY_HAND, BILLED, BEFORE = (
    gettext_noop("Earlier periods, not billed yet"),
    gettext_noop("Credited before"),
    gettext_noop("Fees billed in advance"),
    gettext_noop("Lines added by hand"),
    gettext_noop("Billed already"),
    gettext_noop("On the invoice before this one"),
)


@dataclass(frozen=True, slots=True)
class Paid:
    """What another tenant used of the payer's period, by project."""

    user: str
    project: str  # "" of terms of its plan
    gpu_seconds: Fraction
    amount: Money


@dataclass(frozen=True, slots=True)
class OtherCharges:
    """What a tenant has besides use at prices of single units."""

    payers: bool  # of its use, or it pays for another
    terms: bool  # of its plans
    by_hand: bool  # lines that no invoice has yet
    left_since: datetime | None  # the end of the first period of which something is not billed


@dataclass(frozen=True, slots=True)
class Accrued:
    """What the use of a period, and the terms of its plans, come to so far, whoever pays.

    `extras` are what its invoice would hold besides, were it made now, after those of earlier open periods: with them,
    it comes to `due` before tax.
    """

    use: Mapping[tuple[str, int], Money]  # by project and price, as its lines have it
    terms: list[tuple[str, Money]]
    extras: list[tuple[str, Money]]
    due: list[Money]
    books: Sequence[ChargeInputs]
    paid: list[Paid]  # for others, in periods of theirs that end with this one
    others: Sequence[statements.Statement]  # of each of these, once

    @property
    def use_sums(self) -> list[Money]:
        """Of use alone, one per currency."""
        return per_currency(self.use.values())

    @property
    def sums(self) -> list[Money]:
        """One per currency."""
        return per_currency([*self.use.values(), *(amount for _, amount in self.terms)])

    def of_use(self, factor: Fraction) -> list[Money]:
        """What the period would come to with so many times its use, in the same mix of prices."""
        return per_currency([money for books in self.books for money in scaled(books, factor)])


def accrued(
    *,
    tenant: Tenant,
    period: BillingPeriod,
    other: OtherCharges | None = None,
    inputs: StatementInputs | None = None,
) -> Accrued | None:
    """What the tenant's period has come to; None where prices of single units alone tell all of it.

    That is: each line of use is its quantity times its price, there is nothing else, and nobody pays for
    another. One query then, none with `other`; else those of a close as well. `inputs`: as of `make_statements`.
    """
    other = other or load_other_charges(tenant)
    if _is_plain(other, period):
        return None
    inputs = inputs or StatementInputs(frozenset([tenant.pk]))
    rated = close_inputs.load_rated_periods([period])
    before = earlier_charges.list_before(period, inputs)
    made = statements.make_whole_statements(
        [period], rated, lacking=Lacking.SUPPOSED, before=before, inputs=inputs
    )
    statement, others = made.outcomes[tenant.pk], made.by_others.get(tenant.pk, [])
    earlier = earlier_charges.read_earlier(made, tenant)
    if isinstance(statement, statements.MixedCurrenciesError) or statement.charge_inputs is None:
        return None
    own = earlier_charges.subtract(statement, earlier)
    takes_lines = other.by_hand and earlier_charges.takes_manual_lines(period, own, earlier, inputs)
    by_hand = manual_lines.list_pending([tenant])[tenant.pk] if takes_lines else []
    credited = _load_credited_before(tenant, (own, *own.others, *own.paid))
    extra_amounts = _extra_amounts(own, statement.charge_inputs, earlier, others, by_hand, credited)
    extras = [(name, amount) for name, amounts in extra_amounts for amount in amounts if amount.amount]
    whole = [statement, *(one for _, one in others)]
    amounts = [amount for one in whole for amount in _of_period(one).values()]
    return Accrued(
        _use(whole),
        [term for one in whole for term in _terms(one)],
        extras,
        per_currency([*amounts, *(amount for _, amount in extras)]),
        [one.charge_inputs for one in whole if one.charge_inputs is not None],
        [row for one in _by_user(statement) for row in _paid(one)],
        _by_user(statement),
    )


def _extra_amounts(
    statement: statements.Statement,
    inputs: ChargeInputs,
    earlier: statements.Statement | None,
    others: Sequence[tuple[Tenant, statements.Statement]],
    by_hand: Sequence[ManualLine],
    credited: Sequence[Money],
) -> list[tuple[str, list[Money]]]:
    """What the period's invoice would hold besides its own use and terms, by name; some of it nothing.

    `statement`: without what earlier open periods' invoices hold, which is `earlier`.
    """
    own = inputs.period
    lines = _own_lines(statement)
    waiting = [Money.from_minor(line.amount, line.currency) for line in by_hand]
    return [
        *(
            (
                gettext("Paid by {tenant}").format(tenant=payer.name),
                _sum(-amount for amount in _of_period(one).values()),
            )
            for payer, one in others
        ),
        (
            gettext(BILLED),
            _sum(-one.amount for key, one in inputs.billed.items() if key.service == own),
        ),
        (
            gettext(BEFORE),
            _sum(
                -line.amount for line in (_own_lines(earlier) if earlier else ()) if line.key.service == own
            ),
        ),
        *(
            (gettext(name), _sum(line.amount for line in lines if _is(line, name, own)))
            for name in (EARLIER, AHEAD)
        ),
        *(
            (
                gettext("Used by {tenant}").format(tenant=one.user.name),
                _sum(line.amount for line in one.lines),
            )
            for one in statement.paid
            if one.user is not None
        ),
        (gettext(CREDITED), per_currency(credited)),
        (gettext(BY_HAND), per_currency(waiting)),
    ]


def _load_credited_before(tenant: Tenant, whole: Iterable[statements.Statement]) -> list[Money]:
    """What was credited by hand of what these take back, and is not given a second time; the invoice says so by line.

    One query, none where nothing is taken back.
    """
    taking = [
        (one.currency, line)
        for one in whole
        for line in invoice_drafts.make_lines(
            tenant, replace(one, lines=[row for row in one.lines if row.correction and row.amount.amount < 0])
        )
    ]
    if not taking:
        return []
    billed = corrections.load_remainders(line for _, line in taking)
    return [
        Money.from_minor(part.amount, currency)
        for currency, line in taking
        for part in corrections.divide_lines(
            [line], billed=billed, policy=Corrections.NEXT_INVOICE, currency=currency
        ).lines
        if part.kind == LineKind.CREDIT
    ]


def _own_lines(statement: statements.Statement) -> list[Line]:
    """Of what the tenant itself used, in all currencies."""
    return [line for one in (statement, *statement.others) for line in one.lines]


def accrued_terms(*, tenant: Tenant, periods: Sequence[BillingPeriod]) -> list[list[tuple[str, Money]]]:
    """Of each period, the newest first, the `terms` of `accrued`, in as many queries.

    Of all at once unless the newest is in two currencies.
    """
    other = load_other_charges(tenant) if periods else None
    if other is None or all(_is_plain(other, period) for period in periods):
        return [[] for _ in periods]
    inputs = StatementInputs(frozenset([tenant.pk]))
    outcomes, by_others, *_ = statements.make_whole_statements(
        periods[:1],
        close_inputs.load_rated_periods(periods[:1]),
        lacking=Lacking.SUPPOSED,
        besides=periods,
        inputs=inputs,
    )
    statement, others = outcomes[tenant.pk], by_others.get(tenant.pk, [])
    if isinstance(statement, statements.MixedCurrenciesError):
        accruals = [accrued(tenant=tenant, period=period, other=other, inputs=inputs) for period in periods]
        return [one.terms if one else [] for one in accruals]
    terms = []
    for period in periods:
        payers = third_party_payers.payers_in(period, inputs.stretches)
        whole = [statement, *(one for payer, one in others if payer.pk in payers)]
        service = billing_periods.as_rule(period)
        terms.append([term for one in whole for term in _terms(one, service)])
    return terms


def _of_period(statement: statements.Statement, period: Period | None = None) -> dict[Key, Money]:
    """What is owed for a period, the statement's own unless said, billed or not."""
    own = period or (statement.charge_inputs.period if statement.charge_inputs else None)
    return _amounts(
        {key: owed for key, owed in statement.owed.items() if key.service == own}, statement.prices
    )


def _use(whole: Iterable[statements.Statement]) -> dict[tuple[str, int], Money]:
    use: dict[tuple[str, int], Money] = {}
    for one in whole:
        for key, amount in _of_period(one).items():
            if isinstance(key, LineKey):
                name = key.project, key.price_id
                use[name] = use[name] + amount if name in use else amount
    return use


def _by_user(statement: statements.Statement) -> list[statements.Statement]:
    """One of each whom the tenant pays for: its statements of other currencies tell of the same use."""
    return list({one.user.pk: one for one in reversed(statement.paid) if one.user}.values())[::-1]


def _paid(statement: statements.Statement) -> Iterator[Paid]:
    """By project what the one whose statement it is used, and what the terms of its plan come to."""
    sums: dict[tuple[str, str], tuple[Fraction, Money]] = {}
    for key, amount in _of_period(statement).items():
        project = key.project if isinstance(key, LineKey) else ""
        seconds = Fraction(0)
        if isinstance(key, LineKey) and key.meter is Meter.GPU_HOUR:
            seconds = statement.owed[key].resource_seconds
        before, cost = sums.get((project, amount.currency), (Fraction(0), Money.zero(amount.currency)))
        sums[project, amount.currency] = before + seconds, cost + amount
    for (project, _), (seconds, amount) in sorted(sums.items(), key=lambda item: (not item[0][0], item[0])):
        yield Paid(statement.user.name if statement.user else "", project, seconds, amount)


def accrued_by_tenant(periods: Iterable[BillingPeriod]) -> dict[int, list[Money]]:
    """By tenant, of whom each has one of the periods, what its use has come to so far, one amount per currency.

    As many queries as for a close of all of them; nothing is made.
    """
    period_list = list(periods)
    if not period_list:
        return {}
    outcomes, others, *_ = statements.make_whole_statements(
        period_list, close_inputs.load_rated_periods(period_list), lacking=Lacking.LEFT_OUT
    )
    sums = {}
    for tenant, statement in outcomes.items():
        if not isinstance(statement, statements.MixedCurrenciesError) and statement.charge_inputs is not None:
            whole = [statement, *(other for _, other in others.get(tenant, []))]
            sums[tenant] = per_currency([amount for one in whole for amount in _of_period(one).values()])
    return sums


def priced_by_totals(*, moment: datetime) -> list[BillingPeriod]:
    """The periods around `moment` of tenants whose plans have more than prices of single units. One query."""
    return list(BillingPeriod.objects.raw(sql.BY_TOTALS, {"moment": moment}))


def load_other_charges(tenant: Tenant) -> OtherCharges:
    """One query."""
    with prepared_cursor() as cursor:
        cursor.execute(sql.OTHER_CHARGES, {"tenant": tenant.pk})
        return OtherCharges(*cursor.fetchone())


def _is_plain(other: OtherCharges, period: BillingPeriod) -> bool:
    if other.payers or other.terms:
        return False
    left = other.left_since is not None and other.left_since <= period.start
    return period.closed_at is not None or not (other.by_hand or left)


def _amounts(owed: Mapping[Key, Owed], prices: Mapping[int, Price]) -> dict[Key, Money]:
    amounts: dict[Key, Money] = {}
    for key, one in owed.items():
        if isinstance(key, LineKey):
            amounts[key] = one.amount(prices[key.price_id].version.plan.currency)
        elif one.share is not None:
            amounts[key] = one.share.amount
    return amounts


def _terms(statement: statements.Statement, period: Period | None = None) -> list[tuple[str, Money]]:
    """Those of the period in the order of an invoice; what comes to nothing is left out."""
    place, amounts = list(TermKind).index, _of_period(statement, period)
    keys = sorted(
        (key for key in amounts if isinstance(key, TermKey)), key=lambda key: (place(key.kind), key)
    )
    named = [(statement.terms[key.kind, key.term_id].name, amounts[key]) for key in keys]
    return [(name, amount) for name, amount in named if amount.amount]


def _is(line: Line, name: str, own: Period) -> bool:
    return line.key.service < own if name == EARLIER else line.key.service > own


def _sum(amounts: Iterable[Money]) -> list[Money]:
    return per_currency(amounts)


def scaled(books: ChargeInputs, factor: Fraction) -> list[Money]:
    """What the period comes to with so many times its use, by currency.

    Earlier periods are looked at only where they may carry something over.
    """
    carried = books.terms is not None and any(
        allowance.rollover for listed in books.terms.allowances.values() for allowance in listed
    )
    scaled = replace(
        books,
        used={
            key: seconds * factor if key.service == books.period else seconds
            for key, seconds in books.used.items()
            if carried or key.service == books.period
        },
        billed={},
        periods=books.periods if carried else [books.period],
        in_order=_in_proportion,
    )
    owed = {key: one for key, one in charges.calculate_charges(scaled).items() if key.service == books.period}
    return per_currency(_amounts(owed, books.prices).values())


def _in_proportion(_: Period, use: Mapping[int, Fraction], available: Fraction) -> Mapping[int, Fraction]:
    """What is not used yet has no order of time: all prices of an allowance use it alike."""
    whole = sum(use.values(), Fraction(0))
    return {price: seconds * available / whole for price, seconds in use.items()}
