"""What lines of invoices come to with what running jobs have used since they were rated: by what quotas value use.

Use is worth its part of its line: the line's amount, rounded once, in proportion to the seconds. So what is in a scope
follows tiers and allowances, and everything together is the statement.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from billing.catalog import billing_periods, third_party_payers
from billing.catalog.billing_periods import Lacking
from billing.invoicing import charges, close_inputs, statements
from billing.invoicing.charges import ChargeInputs, InOrder
from billing.invoicing.statement_inputs import StatementInputs
from billing.invoicing.statements import MixedCurrenciesError, Statement
from billing.models import BillingPeriod
from billing.queries.costs import cost
from billing.quotas import corrections
from billing.quotas.corrections import Correction
from billing.quotas.counters import Count, Key, rows, sql
from billing.quotas.price_tags import PriceTag, PriceTags
from billing.rules.money import Money
from billing.rules.period import Period
from billing.rules.statement_lines import LineKey, Owed, TermKey


@dataclass(frozen=True, slots=True)
class Line:
    """The seconds and the amount of one line, all of its project's use at its price."""

    seconds: Fraction
    amount: Money

    def part(self, seconds: Fraction) -> Fraction:
        """What so much of it is worth."""
        return self.amount.amount * min(seconds, self.seconds) / self.seconds if self.seconds else Fraction(0)


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


def load_price_tags(prices: Iterable[int | None]) -> PriceTags:
    """By id. One query."""
    ids = sorted({price for price in prices if price is not None})
    tags = PriceTags()
    for price, *columns in rows(sql.PRICES, {"prices": ids}) if ids else []:
        tags.add(price, columns)
    return tags


def load_charges(
    of_tenants: Sequence[tuple[BillingPeriod, Count]],
    prices: Mapping[int, PriceTag],
    inputs: StatementInputs,
    corrected: Mapping[int, Sequence[Correction]],
) -> dict[int, tuple[Charged, Charged]]:
    """By billing period what its statement comes to as rated, and with what running jobs have used since.

    As many queries as for a close, however many periods there are. `inputs` are of all of them, `corrected` what their
    closes have billed of earlier ones.
    """
    by_tenant: dict[int, list[tuple[BillingPeriod, Count]]] = defaultdict(list)
    for period, count in of_tenants:
        by_tenant[period.tenant_id].append((period, count))
    return _load_charges(by_tenant, prices, inputs, corrected)


def _load_charges(
    of_tenants: Mapping[int, Sequence[tuple[BillingPeriod, Count]]],
    prices: Mapping[int, PriceTag],
    inputs: StatementInputs,
    corrected: Mapping[int, Sequence[Correction]],
) -> dict[int, tuple[Charged, Charged]]:
    """The statement of a tenant's newest period says what is owed of those before it, too."""
    newest = [max((period for period, _ in own), key=lambda one: one.start) for own in of_tenants.values()]
    besides = [period for own in of_tenants.values() for period, _ in own]
    rated = close_inputs.load_rated_periods(newest)
    outcomes, others, *_ = statements.make_whole_statements(
        newest, rated, lacking=Lacking.SUPPOSED, besides=besides, inputs=inputs
    )
    with_pending = corrections.with_pending(corrected, newest, rated, outcomes)
    charged: dict[int, tuple[Charged, Charged]] = {}
    for tenant, listed in of_tenants.items():
        own = outcomes[tenant]
        if isinstance(own, MixedCurrenciesError) and len(listed) > 1:
            for pair in listed:  # of the periods before it only one may be in two currencies
                charged |= _load_charges({tenant: [pair]}, prices, inputs, corrected)
            continue
        if isinstance(own, MixedCurrenciesError) or own.charge_inputs is None:
            continue
        services = {period.pk: billing_periods.as_rule(period) for period, _ in listed}
        grown = {period.pk: _grown_lines(services[period.pk], count, prices) for period, count in listed}
        alone = _before_and_after(
            [own], {key: more for lines in grown.values() for key, more in lines.items()}
        )
        for period, _ in listed:
            service = services[period.pk]
            payers = third_party_payers.payers_in(period, inputs.stretches)
            paying = [one for payer, one in others.get(tenant, ()) if payer.pk in payers]
            both = _before_and_after([own, *paying], grown[period.pk]) if paying else alone
            paid, corrections_in = _paid_amounts(own, service), with_pending.get(period.pk, ())
            before, after = (_charged(one.get(service, ()), paid, corrections_in) for one in both)
            charged[period.pk] = before, after
    return charged


OwedAmounts = Sequence[tuple[LineKey | TermKey, Money]]


def _before_and_after(
    whole: Sequence[Statement], grown: Mapping[LineKey, Fraction]
) -> tuple[Mapping[Period, OwedAmounts], Mapping[Period, OwedAmounts]]:
    """By service period what all who pay for the tenant's use owe, and with so much use more."""
    before = _owed_by_all(whole, {})
    return before, _owed_by_all(whole, grown) if grown else before


def _owed_by_all(
    whole: Sequence[Statement], grown: Mapping[LineKey, Fraction]
) -> Mapping[Period, OwedAmounts]:
    """By service period what all who pay for the tenant's use owe, with so much use more."""
    amounts: dict[Period, list[tuple[LineKey | TermKey, Money]]] = defaultdict(list)
    left = dict(grown)
    for place, one in enumerate(whole):
        known = one.charge_inputs.used if one.charge_inputs else {}
        is_last = place == len(whole) - 1
        own = {
            key: left.pop(key)
            for key in list(left)
            if key in known or (is_last and key.price_id in one.prices)
        }
        for service, part in _owed(one, own).items():
            amounts[service] += part
    return amounts


def _owed(one: Statement, grown: Mapping[LineKey, Fraction]) -> Mapping[Period, OwedAmounts]:
    """By service period what one of them owes."""
    amounts: dict[Period, list[tuple[LineKey | TermKey, Money]]] = defaultdict(list)
    inputs = one.charge_inputs
    if inputs is None:
        return amounts
    owed = charges.calculate_charges(_with_growth(inputs, grown)) if grown else one.owed
    for key, entry in owed.items():
        amount = _amount(key, entry, one)
        if amount is not None:
            amounts[key.service].append((key, amount))
    return amounts


def _paid_amounts(own: Statement, service: Period) -> list[Money]:
    """What the tenant pays for others with that period of its own, in the last period of theirs that ended with it.

    Of each once: its statements of other currencies tell of the same use.
    """
    by_user = {one.user.pk: one for one in reversed(own.paid) if one.user}
    amounts: list[Money] = []
    for one in by_user.values():
        ended = [period for period in one.periods if period.end <= service.end]
        if ended:
            amounts += [amount for _, amount in _owed(one, {}).get(max(ended), ())]
    return amounts


def _charged(owed: OwedAmounts, paid: Sequence[Money], corrected: Sequence[Correction]) -> Charged:
    use: dict[tuple[str, int], Money] = {}
    terms: list[Money] = []
    for key, amount in owed:
        if isinstance(key, LineKey):
            name = key.project, key.price_id
            use[name] = use[name] + amount if name in use else amount
        else:
            terms.append(amount)
    return Charged(use, terms, paid, corrected)


def _grown_lines(service: Period, count: Count, prices: Mapping[int, PriceTag]) -> dict[LineKey, Fraction]:
    grown: dict[LineKey, Fraction] = defaultdict(Fraction)
    for key, seconds in count.grown.items():
        priced = prices.get(key.price or 0)
        if seconds and key.price is not None and priced is not None and not priced.is_prepaid:
            grown[LineKey(service, key.name, priced.tag.meter, key.price)] += seconds
    return grown


def _amount(key: LineKey | TermKey, entry: Owed, one: Statement) -> Money | None:
    if isinstance(key, LineKey):
        return entry.amount(one.prices[key.price_id].version.plan.currency)
    return entry.share.amount if entry.share is not None else None


def _with_growth(inputs: ChargeInputs, grown: Mapping[LineKey, Fraction]) -> ChargeInputs:
    used = {**inputs.used}
    for key, seconds in grown.items():
        used[key] = used.get(key, Fraction(0)) + seconds
    return replace(inputs, used=used, in_order=_grown_last(inputs.in_order, grown))


def _grown_last(in_order: InOrder, grown: Mapping[LineKey, Fraction]) -> InOrder:
    """An allowance covers what is rated first, in its order; what has grown since is later than all of it."""
    by_service: dict[Period, dict[int, Fraction]] = {}
    for key, seconds in grown.items():
        later = by_service.setdefault(key.service, defaultdict(Fraction))
        later[key.price_id] += seconds

    def ordered(service: Period, use: Mapping[int, Fraction], available: Fraction) -> Mapping[int, Fraction]:
        if service not in by_service:
            return in_order(service, use, available)
        later = by_service[service]
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
