"""A statement: what is owed less what was already billed, line by line.

It does not ask what happened since the last invoice. It compares totals, so late usage, corrections
and voided invoices are all the same case: whatever the order, the same cents have been billed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar

from billing.rules.errors import RuleError
from billing.rules.money import Money

if TYPE_CHECKING:
    from billing.rules.meters import AnyMeter, PriceModel
    from billing.rules.period import Period


@dataclass(frozen=True, slots=True, order=True)
class LineKey:
    """What makes two quantities one line: when it was used, by which project, of what, at which price."""

    service: Period  # the billing period in which the use took place
    project: str
    meter: AnyMeter
    price_id: int


class TermKind(StrEnum):
    """What a line charges for that is no use, in the order of an invoice."""

    FEE = "fee"
    COMMITMENT = "commitment"
    DISCOUNT = "discount"


@dataclass(frozen=True, slots=True, order=True)
class TermKey:
    """A line that states a term of the plan for a service period; `term_id` is the row of its kind."""

    service: Period
    kind: TermKind
    term_id: int


Key = LineKey | TermKey
K = TypeVar("K", bound=LineKey | TermKey)


@dataclass(frozen=True, slots=True)
class Owed:
    """All that was ever used under a key, billed or not. ValueError for a negative total.

    `share` is what is owed for it where it is one of several keys that are priced together.
    """

    resource_seconds: Fraction
    model: PriceModel | None  # None of a term, whose share is all
    share: Share | None = None

    def __post_init__(self) -> None:
        if self.resource_seconds < 0:
            raise RuleError("usage-negative", seconds=self.resource_seconds)

    def amount(self, currency: str) -> Money:
        """What is owed for it in whole minor units: rounded here, once, or its share of what was."""
        if self.share is not None or self.model is None:
            return self.share.amount if self.share else Money.zero(currency)
        return self.model.amount(self.resource_seconds, currency).rounded()


@dataclass(frozen=True, slots=True)
class Share:
    """A key's part of an amount that was computed and rounded for several; the parts add up to it."""

    amount: Money
    terms: Mapping[str, Any]  # JSON by which the amount and the part can be computed again


@dataclass(frozen=True, slots=True)
class Billed:
    """The sum of the lines that standing (not voided) invoices hold under a key."""

    resource_seconds: Fraction
    amount: Money
    unit_price: Decimal | None  # as those lines print it; the line that takes them back prints it again


@dataclass(frozen=True, slots=True)
class Line:
    """One line of an invoice; negative where less is owed than was billed.

    `amount` is in whole minor units and can differ from quantity × price by a rounding of the lines
    before it: it brings the total billed under the key to the rounded total owed.
    """

    key: Key
    resource_seconds: Fraction
    unit_price: Decimal | None  # per hour of the resource; None where `terms` say how it is priced
    amount: Money
    correction: bool  # of an earlier (or later) service period than the invoice's own
    terms: Mapping[str, Any] = field(default_factory=dict)  # of a share, with what was billed of it before
    first_charge: bool = False  # of an earlier period of which nothing was ever billed: it corrects nothing
    former_price: Decimal | None = (
        None  # what was billed per hour, of a line that is owed for another price alone
    )


def statement(
    *, owed: Mapping[K, Owed], billed: Mapping[K, Billed], period: Period, currency: str
) -> list[Line]:
    """The lines that bring what is billed to what is owed; no lines when they are equal.

    `owed` and `billed` are totals since ever, not since the last invoice. Lines of `period` come
    first, corrections after them, each by key. A key that is billed but no longer owed is taken
    back whole. A free price still shows what was used. Where a price was corrected, what that comes to for all that was
    billed by it is a line of its own, before what was used since. CurrencyMismatchError when something was billed in
    another currency.
    """
    open_before = {key.service for key in owed} - {key.service for key in billed}
    lines = []
    for key in owed.keys() | billed.keys():
        before, amounts = billed.get(key), owed.get(key)
        corrected = _price_correction(key, amounts, before, period, currency)
        if corrected is not None and before is not None:
            lines.append(corrected)
            before = replace(before, amount=before.amount + corrected.amount)
        lines.append(_line(key, amounts, before, period, currency, first=key.service in open_before))
    return sorted(
        (line for line in lines if line.resource_seconds or line.amount.amount),
        key=_place,
    )


def _price_correction(
    key: Key, owed: Owed | None, billed: Billed | None, period: Period, currency: str
) -> Line | None:
    """What was billed, at the price of now; None where that is the same price, or one over several projects."""
    if owed is None or owed.model is None or owed.share is not None or billed is None:
        return None
    if billed.unit_price is None or billed.unit_price == owed.model.unit_price:
        return None
    amount = owed.model.amount(billed.resource_seconds, currency).rounded() - billed.amount
    return Line(
        key,
        Fraction(0),
        owed.model.unit_price,
        amount,
        correction=key.service != period,
        former_price=billed.unit_price,
    )


def _place(line: Line) -> tuple[bool, int, Key]:
    """Use before fees, those before the commitment, and discounts last."""
    kind = 1 + list(TermKind).index(line.key.kind) if isinstance(line.key, TermKey) else 0
    return line.correction, kind, line.key


def _line(
    key: Key, owed: Owed | None, billed: Billed | None, period: Period, currency: str, *, first: bool
) -> Line:
    seconds, amount, unit_price = Fraction(0), Money.zero(currency), None
    terms: Mapping[str, Any] = {}
    if billed:
        seconds, amount, unit_price = -billed.resource_seconds, amount - billed.amount, billed.unit_price
    if owed:
        seconds += owed.resource_seconds
        amount += owed.amount(currency)
        unit_price = owed.model.unit_price if owed.model else None
        if owed.share is not None:
            terms = {**owed.share.terms, "billed": billed.amount.minor if billed else 0}
    correction = key.service != period
    if isinstance(key, TermKey):  # what is billed in advance corrects nothing
        correction = key.service.end <= period.start
    return Line(
        key,
        seconds,
        unit_price,
        amount,
        correction=correction,
        first_charge=correction and first,
        terms=terms,
    )
