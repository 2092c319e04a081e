"""A price, or another term of a version, in words, as tenants and operators read it."""

from __future__ import annotations

from decimal import Decimal

from django.utils.translation import gettext as _

from billing.catalog import line_descriptions
from billing.catalog.version_terms import Term
from billing.models import Allowance, Commitment, Fee, Price
from billing.models.plans import priced_meter
from billing.rules.formatting import grouped, price_text


def price_words(price: Price) -> str:
    """How it depends on the quantity, or what a unit costs; and what it includes."""
    words = line_descriptions.scale(price)
    if not words:
        amount = price_text(price.unit_price, price.version.plan.currency)
        words = _("{amount} per {unit}").format(amount=amount, unit=_(priced_meter(price).unit))
    if price.allowance:
        return _("{price}, after “{allowance}”").format(price=words, allowance=price.allowance.name)
    return words


def term_words(term: Term, currency: str) -> str:
    """What it comes to per period."""
    if isinstance(term, Allowance):
        text = (
            _("{hours} hours included; unused hours roll over")
            if term.rollover
            else _("{hours} hours included")
        )
        return text.format(hours=number_text(term.hours))
    if isinstance(term, Fee):
        text = _("{amount}, in advance") if term.in_advance else "{amount}"
        return text.format(amount=price_text(term.amount, currency))
    if isinstance(term, Commitment):
        text = _("at least {amount}")
        if term.overage_factor != 1:
            text = _("at least {amount}; overage is charged {factor} times")
        return text.format(amount=price_text(term.amount, currency), factor=number_text(term.overage_factor))
    if term.amount is not None:
        return _("{amount} off").format(amount=price_text(term.amount, currency))
    return _("{percent} % off").format(percent=number_text(term.percent or Decimal(0)))


def number_text(number: Decimal) -> str:
    """`1,234.5`: without the zeros at its end."""
    return grouped(f"{number.normalize():f}")
