"""One price over several projects: computed once for all that they used, rounded once, then shared.

Tiers and allowances look at the total of a price in a service period. Each project bears the amount in
proportion to what it used, by largest remainder, so that the lines add up to it. The parts follow from
the totals alone: whatever came first, the same cents are billed to each in the end. Late use of one
project can therefore move cents of another, whose line then has an amount without a quantity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from math import lcm
from typing import Any, TypeVar

from billing.rules.errors import RuleError
from billing.rules.meters import SECONDS_PER_HOUR, PriceModel
from billing.rules.money import Money, split
from billing.rules.statement_lines import Owed, Share
from billing.rules.tiers import as_terms, of_terms

K = TypeVar("K")


def shared(
    used: Mapping[K, Fraction],
    model: PriceModel,
    currency: str,
    *,
    included: Fraction = Fraction(0),
    allowance: Mapping[str, Any] | None = None,
) -> dict[K, Owed]:
    """What is owed under each key for its resource-seconds of one price in one service period.

    `included` resource-seconds of the sum cost nothing; ValueError where they are more than it or
    negative. `allowance` says by what they are, and stands in the terms. A key without use owes nothing, and is
    told so.
    """
    whole = sum(used.values(), Fraction(0))
    if not 0 <= included <= whole:
        raise RuleError("share-included", whole=whole, included=included)
    amount = model.amount(whole - included, currency).rounded()
    terms = {
        "price": as_terms(model),
        "of": _text(whole),
        "included": _text(included),
        "amount": amount.minor,
    }
    if allowance is not None:
        terms["allowance"] = dict(allowance)
    return {
        key: Owed(used[key], model, Share(share, {**terms, "own": _text(used[key]), "share": share.minor}))
        for key, share in zip(used, _shares(amount, list(used.values())), strict=True)
    }


def recomputed(terms: Mapping[str, Any], currency: str) -> Money:
    """The amount that frozen terms come to for all projects, computed again. ValueError for none that `shared` gave."""
    try:
        whole, included = Fraction(terms["of"]), Fraction(terms["included"])
        model = of_terms(terms["price"])
    except (KeyError, TypeError) as error:
        raise RuleError("line-terms", terms=terms) from error
    return model.amount(whole - included, currency).rounded()


def per_hour(terms: Mapping[str, Any], currency: str) -> Money:
    """What an hour of the project's use comes to on average, exact: jobs of a shared line are valued by it."""
    own = Fraction(terms["own"])
    share = Money.from_minor(terms["share"], currency)
    return share * (SECONDS_PER_HOUR / own) if own else Money.zero(currency)


def _shares(amount: Money, used: list[Fraction]) -> Iterator[Money]:
    unit = lcm(*(seconds.denominator for seconds in used))
    weights = [int(seconds * unit) for seconds in used]
    # Without use there is nothing to share by, nor anything to share.
    yield from split(amount, weights) if any(weights) else [Money.zero(amount.currency)] * len(used)


def _text(seconds: Fraction) -> str:
    """`"3600"` or `"25200/7"`: exact, as Fraction reads it."""
    return str(seconds)
