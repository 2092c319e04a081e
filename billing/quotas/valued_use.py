"""What lines of invoices come to with what running jobs have used since they were rated: by what quotas value use.

Use is worth its part of its line: the line's amount, rounded once, in proportion to the seconds. So what is in a scope
follows tiers and allowances, and everything together is the statement.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from fractions import Fraction
from typing import NamedTuple

from billing.catalog.billing_periods import Lacking
from billing.invoicing import charges, close_inputs, statements
from billing.invoicing.charges import ChargeInputs, InOrder
from billing.invoicing.statements import MixedCurrenciesError, Statement
from billing.models import BillingPeriod
from billing.queries.costs import Tag, cost, tag
from billing.quotas.counters import Count, Key, rows, sql
from billing.rules.money import Money
from billing.rules.period import Period
from billing.rules.statement_lines import LineKey, Owed, TermKey


@dataclass(frozen=True, slots=True)
class PriceTag:
    """A price, whether it is paid out of wallets, and what each second costs by it, in major units."""

    tag: Tag
    is_prepaid: bool
    a_second: Fraction


@dataclass(frozen=True, slots=True)
class Line:
    """The seconds and the amount of one line, all of its project's use at its price."""

    seconds: Fraction
    amount: Money

    def part(self, seconds: Fraction) -> Fraction:
        """What so much of it is worth."""
        return self.amount.amount * min(seconds, self.seconds) / self.seconds if self.seconds else Fraction(0)


class Correction(NamedTuple):
    """Billed of an earlier period: when that ended, and how much."""

    end: datetime
    amount: Money


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of a billing period so far, and what its plans charge or take off besides use."""

    lines: Mapping[Key, Line]
    terms: Sequence[Money] = ()
    paid: Sequence[Money] = ()  # for other tenants
    corrections: Sequence[Correction] = ()  # billed with this one


@dataclass(frozen=True, slots=True)
class Charged:
    """What a period's statement says of use and of terms, by (project's name, price)."""

    use: Mapping[tuple[str, int], Money]
    terms: Sequence[Money]
    paid: Sequence[Money] = field(default_factory=tuple)
    corrections: Sequence[Correction] = field(default_factory=tuple)


def load_price_tags(prices: Iterable[int | None]) -> dict[int, PriceTag]:
    """By id. One query."""
    ids = sorted({price for price in prices if price is not None})
    price_rows = rows(sql.PRICES, {"prices": ids}) if ids else []
    tags = {}
    for price, *columns, prepaid in price_rows:
        one = tag(*columns)
        tags[price] = PriceTag(one, prepaid, cost(one, Fraction(1)).amount)
    return tags


def load_charges(
    wanted: Sequence[tuple[BillingPeriod, Count]], prices: Mapping[int, PriceTag]
) -> dict[int, tuple[Charged, Charged]]:
    """By billing period what its statement comes to as rated, and with what running jobs have used since.

    As many queries as for a close of each tenant's first period, and again of each's second, and so on.
    """
    rounds: list[list[tuple[BillingPeriod, Count]]] = []
    seen: dict[int, int] = defaultdict(int)
    for period, count in wanted:
        place = seen[period.tenant_id]
        seen[period.tenant_id] += 1
        if place == len(rounds):
            rounds.append([])
        rounds[place].append((period, count))
    charged: dict[int, tuple[Charged, Charged]] = {}
    for one in rounds:
        charged |= _charges_of_round(one, prices)
    return charged


def _charges_of_round(
    wanted: Sequence[tuple[BillingPeriod, Count]], prices: Mapping[int, PriceTag]
) -> dict[int, tuple[Charged, Charged]]:
    periods = [period for period, _ in wanted]
    rated = close_inputs.load_rated_periods(periods)
    outcomes = statements.make_statements(periods, rated, lacking=Lacking.SUPPOSED)
    others = statements.load_paid_statements(periods)
    billed = _load_billed_corrections(periods)
    charged = {}
    for period, count in wanted:
        own = outcomes[period.tenant_id]
        if isinstance(own, MixedCurrenciesError) or own.charge_inputs is None:
            continue
        whole = [own, *(other for _, other in others.get(period.tenant_id, []))]
        grown = _grown_lines(own.charge_inputs.period, count, prices)
        paid = [money for one in _by_user(own) for money in _amounts(one, {})]
        corrections = billed[period.pk]
        if all(row.closed for row in rated.get(period.tenant_id, []) if row.period != period.pk):
            corrections += _pending_corrections(own, period)
        charged[period.pk] = (
            replace(_charged(whole, {}, paid), corrections=corrections),
            replace(_charged(whole, grown, paid), corrections=corrections),
        )
    return charged


def _load_billed_corrections(periods: Sequence[BillingPeriod]) -> Mapping[int, list[Correction]]:
    """By period what its close has billed or given back of earlier ones. One query."""
    corrections: dict[int, list[Correction]] = defaultdict(list)
    for period, end, amount, currency in rows(
        sql.CORRECTIONS, {"periods": [period.pk for period in periods]}
    ):
        corrections[period].append(Correction(end, Money.from_minor(int(amount), currency)))
    return corrections


def _pending_corrections(own: Statement, period: BillingPeriod) -> list[Correction]:
    """What the period's close would bill now of earlier ones; what is late for a closed one waits for the next."""
    if period.closed_at is not None:
        return []
    return [
        Correction(line.key.service.end, line.amount)
        for one in (own, *own.others)
        for line in one.lines
        if line.correction
    ]


def _charged(whole: Sequence[Statement], grown: Mapping[LineKey, Fraction], paid: Sequence[Money]) -> Charged:
    use: dict[tuple[str, int], Money] = {}
    terms: list[Money] = []
    left = dict(grown)
    for place, one in enumerate(whole):
        known = one.charge_inputs.used if one.charge_inputs else {}
        is_last = place == len(whole) - 1
        own = {
            key: left.pop(key)
            for key in list(left)
            if key in known or (is_last and key.price_id in one.prices)
        }
        for key, amount in _owed_of_period(one, own):
            if isinstance(key, LineKey):
                name = key.project, key.price_id
                use[name] = use[name] + amount if name in use else amount
            else:
                terms.append(amount)
    return Charged(use, terms, paid)


def _grown_lines(service: Period, count: Count, prices: Mapping[int, PriceTag]) -> dict[LineKey, Fraction]:
    grown: dict[LineKey, Fraction] = defaultdict(Fraction)
    for key, seconds in count.grown.items():
        priced = prices.get(key.price or 0)
        if seconds and key.price is not None and priced is not None and not priced.is_prepaid:
            grown[LineKey(service, key.name, priced.tag.meter, key.price)] += seconds
    return grown


def _owed_of_period(
    one: Statement, grown: Mapping[LineKey, Fraction]
) -> list[tuple[LineKey | TermKey, Money]]:
    """What is owed for the statement's own period, with so much use more."""
    inputs = one.charge_inputs
    if inputs is None:
        return []
    owed = charges.calculate_charges(_with_growth(inputs, grown)) if grown else one.owed
    owed_amounts = []
    for key, entry in owed.items():
        if key.service == inputs.period:
            amount = _amount(key, entry, one)
            if amount is not None:
                owed_amounts.append((key, amount))
    return owed_amounts


def _amount(key: LineKey | TermKey, entry: Owed, one: Statement) -> Money | None:
    if isinstance(key, LineKey):
        return entry.amount(one.prices[key.price_id].version.plan.currency)
    return entry.share.amount if entry.share is not None else None


def _amounts(one: Statement, grown: Mapping[LineKey, Fraction]) -> list[Money]:
    return [amount for _, amount in _owed_of_period(one, grown)]


def _by_user(own: Statement) -> list[Statement]:
    """One of each whom the tenant pays for: its statements of other currencies tell of the same use."""
    return list({one.user.pk: one for one in reversed(own.paid) if one.user}.values())


def _with_growth(inputs: ChargeInputs, grown: Mapping[LineKey, Fraction]) -> ChargeInputs:
    used = {**inputs.used}
    for key, seconds in grown.items():
        used[key] = used.get(key, Fraction(0)) + seconds
    return replace(inputs, used=used, in_order=_grown_last(inputs.in_order, inputs.period, grown))


def _grown_last(in_order: InOrder, period: Period, grown: Mapping[LineKey, Fraction]) -> InOrder:
    """An allowance covers what is rated first, in its order; what has grown since is later than all of it."""

    def ordered(service: Period, use: Mapping[int, Fraction], available: Fraction) -> Mapping[int, Fraction]:
        if service != period:
            return in_order(service, use, available)
        later: dict[int, Fraction] = defaultdict(Fraction)
        for key, seconds in grown.items():
            later[key.price_id] += seconds
        rated = {price: seconds - later.get(price, Fraction(0)) for price, seconds in use.items()}
        rated_sum = sum(rated.values(), Fraction(0))
        if available >= rated_sum:
            covered, rest = rated, available - rated_sum
        else:
            covered, rest = dict(in_order(service, rated, available)), Fraction(0)
        whole = sum((later[price] for price in use if price in later), Fraction(0))
        part = min(Fraction(1), rest / whole) if whole else Fraction(0)
        return {
            price: covered.get(price, Fraction(0)) + later.get(price, Fraction(0)) * part for price in use
        }

    return ordered


def make_lines(
    count: Count, prices: Mapping[int, PriceTag], charged: tuple[Charged, Charged] | None
) -> tuple[Lines, Lines]:
    """The lines of all that a tenant used in a billing period: as rated, and with what has grown since."""
    before = _lines(count.rated, prices, charged[0] if charged else None)
    whole = {key: count.seconds(key) for key in count.keys}
    return before, _lines(whole, prices, charged[1] if charged else None)


def _lines(seconds: Mapping[Key, Fraction], prices: Mapping[int, PriceTag], charged: Charged | None) -> Lines:
    """Keys of one project and price are one line, whatever they are split by."""
    lines = {}
    for key, used in seconds.items():
        priced = prices.get(key.price or 0)
        if key.price is None or priced is None:
            continue
        amount = charged.use.get((key.name, key.price)) if charged else None
        lines[key] = Line(used, cost(priced.tag, used).rounded() if amount is None else amount)
    if charged is None:
        return Lines(lines)
    return Lines(lines, charged.terms, charged.paid, charged.corrections)
