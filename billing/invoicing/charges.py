"""What a tenant owes, from the totals that rating keeps and the terms of its plans.

Each price is computed over all projects, once. Then come flat fees, what is missing to a commitment or
lies above it, and discounts on all of that, each once per service period.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from billing.catalog.terms import Terms
from billing.models import Allowance, Price
from billing.models.plans import model_of
from billing.rules.fees import Commitment, Discount, Fee, Included, committed, included
from billing.rules.meters import PerUnit
from billing.rules.money import Money
from billing.rules.period import Period, unbroken
from billing.rules.price_shares import shared
from billing.rules.statement_lines import Billed, Key, LineKey, Owed, Share, TermKey, TermKind

InOrder = Callable[[Period, Mapping[int, Fraction], Fraction], Mapping[int, Fraction]]
"""How much of an allowance each of several prices takes, by its use: see `billing.catalog.allowances`."""


@dataclass(frozen=True, slots=True)
class ChargeInputs:
    """What is known of one tenant: `used` are resource-seconds by key, `billed` what standing lines hold."""

    used: Mapping[LineKey, Fraction]
    billed: Mapping[Key, Billed]
    prices: Mapping[int, Price]
    period: Period  # that the statement is of
    # All that are looked at, in order; those behind `period` owe advance fees alone.
    periods: Sequence[Period]
    terms: Terms | None
    in_order: InOrder


def calculate_charges(inputs: ChargeInputs) -> dict[Key, Owed]:
    """By key what is owed since ever, in whole minor units.

    A key that was billed and holds nothing any more still has its part, of zero, in a price that is
    computed over all projects, so that its line says how the rest is shared.
    """
    charges: dict[Key, Owed] = {}
    free = _apply_allowances(inputs)
    for (service, price_id), together in _usage_by_price(inputs).items():
        price = inputs.prices[price_id]
        part, allowance = free.get((service, price_id), (Fraction(0), None))
        if price.scale or price.allowance_id is not None:
            parts = shared(
                together, model_of(price), price.version.plan.currency, included=part, allowance=allowance
            )
            charges |= dict(parts.items())
        else:
            model = PerUnit(price.unit_price)
            charges |= {key: Owed(seconds, model) for key, seconds in together.items() if seconds}
    if inputs.terms is not None:
        for service in inputs.periods:
            charges |= _term_charges(inputs, inputs.terms, service, charges)
    return charges


def _usage_by_price(inputs: ChargeInputs) -> dict[tuple[Period, int], dict[LineKey, Fraction]]:
    """By service period and price what each key used; nothing, for keys that were only billed."""
    groups: dict[tuple[Period, int], dict[LineKey, Fraction]] = defaultdict(dict)
    keys = {*inputs.used, *(key for key in inputs.billed if isinstance(key, LineKey))}
    for key in sorted(keys):
        groups[key.service, key.price_id][key] = inputs.used.get(key, Fraction(0))
    return groups


def _apply_allowances(inputs: ChargeInputs) -> dict[tuple[Period, int], tuple[Fraction, Mapping[str, Any]]]:
    """By service period and price the resource-seconds that an allowance includes, and how it stands there."""
    by_price: dict[tuple[Period, int], tuple[Fraction, Mapping[str, Any]]] = {}
    for terms, allowance, run in _allowance_runs(inputs):
        by_price |= _allowance_balances(inputs, terms, allowance, run)
    return by_price


def read_allowances(inputs: ChargeInputs) -> tuple[Mapping[int, Fraction], list[tuple[Allowance, Included]]]:
    """Of the statement's own period: by price the resource-seconds that cost nothing, and how each allowance stands."""
    parts = {
        price: part
        for (period, price), (part, _shown) in _apply_allowances(inputs).items()
        if period == inputs.period
    }
    stands = [
        (allowance, _allowance_stands(inputs, terms, allowance, run)[-1])
        for terms, allowance, run in _allowance_runs(inputs)
        if run[-1] == inputs.period
    ]
    return parts, stands


def _allowance_runs(inputs: ChargeInputs) -> Iterator[tuple[Terms, Allowance, Sequence[Period]]]:
    """Each allowance of a plan with the periods, which follow each other, in which the tenant has it."""
    if inputs.terms is None:
        return
    for version, allowances in inputs.terms.allowances.items():
        periods = [
            service
            for service in inputs.periods
            if service <= inputs.period and inputs.terms.seconds(version, service)
        ]
        for allowance in allowances:
            if allowance.tenant_id is not None:  # which stands in the place of one that prices name
                continue
            for run in unbroken(periods):
                yield inputs.terms, allowance, run


def _allowance_stands(
    inputs: ChargeInputs, terms: Terms, allowance: Allowance, periods: Sequence[Period]
) -> list[Included]:
    """How the allowance stands in each of the periods, which follow each other."""
    period_totals = [
        (
            _included_hours(_allowance_parts(terms, allowance, period), period),
            sum(_covered_usage(inputs, allowance.pk, period).values(), Fraction(0)),
        )
        for period in periods
    ]
    return included(rollover=allowance.rollover, periods=period_totals)


def _allowance_balances(
    inputs: ChargeInputs, terms: Terms, allowance: Allowance, periods: Sequence[Period]
) -> dict[tuple[Period, int], tuple[Fraction, Mapping[str, Any]]]:
    """As `_apply_allowances`, of one allowance in periods that follow each other."""
    by_price: dict[tuple[Period, int], tuple[Fraction, Mapping[str, Any]]] = {}
    allowance_parts = [_allowance_parts(terms, allowance, period) for period in periods]
    uses = [_covered_usage(inputs, allowance.pk, period) for period in periods]
    stands = _allowance_stands(inputs, terms, allowance, periods)
    for period, parts, use, stand in zip(periods, allowance_parts, uses, stands, strict=True):
        if stand.available >= stand.used or len(use) == 1:
            parted = {price: min(seconds, stand.available) for price, seconds in use.items()}
        else:
            parted = dict(inputs.in_order(period, use, stand.available))
        shown = _allowance_detail(
            allowance, parts, terms.seconds(allowance.version_id, period), period, stand
        )
        by_price |= {(period, price): (part, shown) for price, part in parted.items()}
    return by_price


AllowanceParts = list[tuple[Decimal, int]]
"""Hours of an allowance per period, and for how many seconds of one they hold."""


def _allowance_parts(terms: Terms, allowance: Allowance, period: Period) -> AllowanceParts:
    """What the plan includes, and what the tenant's own do in its place."""
    rows = [
        row
        for row in terms.allowances[allowance.version_id]
        if row.name == allowance.name and terms.seconds_in_force(row, period)
    ]
    return [(row.hours, terms.seconds_in_force(row, period)) for row in rows]


def _included_hours(allowance_parts: AllowanceParts, period: Period) -> Fraction:
    return sum(
        (Fraction(hours) * Fraction(seconds, period.whole_seconds) for hours, seconds in allowance_parts),
        Fraction(0),
    )


def _allowance_detail(
    allowance: Allowance, allowance_parts: AllowanceParts, seconds: int, period: Period, stand: Included
) -> dict[str, Any]:
    """How it stands in the period, as the lines of the use that it covers say it."""
    allowance_terms = {
        "name": allowance.name,
        "of": period.whole_seconds,
        "carried": str(stand.carried),
        "used": str(stand.used),
    }
    if allowance_parts == [(allowance.hours, seconds)]:
        return allowance_terms | {"hours": _decimal_text(allowance.hours), "seconds": seconds}
    return allowance_terms | {
        "given": [
            {"hours": _decimal_text(hours), "seconds": part_seconds}
            for hours, part_seconds in allowance_parts
        ]
    }


def _covered_usage(inputs: ChargeInputs, allowance: int, period: Period) -> dict[int, Fraction]:
    """By price what was used of those that the allowance covers."""
    by_price: dict[int, Fraction] = defaultdict(Fraction)
    for key, seconds in inputs.used.items():
        if key.service == period and inputs.prices[key.price_id].allowance_id == allowance and seconds:
            by_price[key.price_id] += seconds
    return dict(by_price)


def _term_charges(
    inputs: ChargeInputs, terms: Terms, service: Period, use: Mapping[Key, Owed]
) -> dict[Key, Owed]:
    """Fees, the commitment and discounts of one service period, of each version that the tenant was on."""
    charges: dict[Key, Owed] = {}
    for version, currency in terms.currencies.items():
        seconds = terms.seconds(version, service)
        if not seconds:
            continue
        of_version = dict(_fees(inputs, terms, service, version))
        if service <= inputs.period:
            amount = _price_usage(use, inputs, service, version, currency)
            of_version |= _commitment(terms, service, version, amount)
            charged = amount
        else:
            charged = Money.zero(currency)
        charged = sum((charge.amount(currency) for charge in of_version.values()), charged)
        charges |= of_version | dict(_discounts(terms, service, version, charged))
    return charges


def _fees(inputs: ChargeInputs, terms: Terms, service: Period, version: int) -> Iterator[tuple[Key, Owed]]:
    for fee in terms.fees[version]:
        seconds = terms.seconds_in_force(fee, service)
        if seconds and (fee.in_advance or service <= inputs.period):
            amount = Fee(fee.amount).owed(terms.currencies[version], Fraction(seconds, service.whole_seconds))
            share_terms = {"fee": _decimal_text(fee.amount), "seconds": seconds, "of": service.whole_seconds}
            yield TermKey(service, TermKind.FEE, fee.pk), Owed(Fraction(0), None, Share(amount, share_terms))


def _commitment(terms: Terms, service: Period, version: int, use: Money) -> dict[Key, Owed]:
    """One line, of the plan's commitment and the tenant's own in its place: use is not told apart in a period."""
    rows = terms.commitments[version]
    active_rows = [
        (row, terms.seconds_in_force(row, service)) for row in rows if terms.seconds_in_force(row, service)
    ]
    if not active_rows:
        return {}
    seconds, of = terms.seconds(version, service), service.whole_seconds
    parts = [(Commitment(row.amount, row.overage_factor), Fraction(part, of)) for row, part in active_rows]
    amount = committed(parts, use, whole=Fraction(seconds, of))
    term_parts = [
        {
            "commitment": _decimal_text(row.amount),
            "factor": _decimal_text(row.overage_factor),
            "seconds": part,
        }
        for row, part in active_rows
    ]
    plain = len(active_rows) == 1 and active_rows[0][1] == seconds
    share_terms = (term_parts[0] if plain else {"commitments": term_parts, "seconds": seconds}) | {
        "of": of,
        "use": use.minor,
    }
    lasting = [row for row in rows if row.tenant_id is None] or [row for row, _ in active_rows]
    named = min(lasting, key=lambda row: row.pk)  # the tenant's own that does not hold yet can be dropped
    key = TermKey(service, TermKind.COMMITMENT, named.pk)
    return {key: Owed(Fraction(0), None, Share(amount, share_terms))}


def _discounts(terms: Terms, service: Period, version: int, base: Money) -> Iterator[tuple[Key, Owed]]:
    """One after the other, each on what the ones before it leave."""
    for discount in terms.discounts[version]:
        if discount.percent == 0:  # a tenant's own, which has it get none
            continue
        seconds = terms.seconds_in_force(discount, service)
        of = service.whole_seconds if discount.percent is None else terms.seconds(version, service)
        amount = Discount(discount.percent, discount.amount).owed(base, Fraction(seconds, of))
        share_terms = {
            "percent": None if discount.percent is None else _decimal_text(discount.percent),
            "off": None if discount.amount is None else _decimal_text(discount.amount),
            "seconds": seconds,
            "of": of,
            "base": base.minor,
        }
        yield (
            TermKey(service, TermKind.DISCOUNT, discount.pk),
            Owed(Fraction(0), None, Share(amount, share_terms)),
        )
        base += amount


def _price_usage(
    use: Mapping[Key, Owed], inputs: ChargeInputs, service: Period, version: int, currency: str
) -> Money:
    """What the use of one service period comes to at the version's prices."""
    return sum(
        (
            owed.amount(currency)
            for key, owed in use.items()
            if isinstance(key, LineKey)
            and key.service == service
            and inputs.prices[key.price_id].version_id == version
        ),
        Money.zero(currency),
    )


def _decimal_text(number: Decimal) -> str:
    return f"{number.normalize():f}"
