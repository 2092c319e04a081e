"""A price in words, as tenants and operators read it."""

from __future__ import annotations

from django.utils.translation import gettext as _

from billing.catalog import line_descriptions
from billing.models import Price
from billing.models.plans import priced_meter
from portal.web import format as say


def price_words(price: Price) -> str:
    """How it depends on the quantity, or what a unit costs; and what it includes."""
    words = line_descriptions.scale(price)
    if not words:
        amount = say.price(price.unit_price, price.version.plan.currency)
        words = _("{amount} per {unit}").format(amount=amount, unit=_(priced_meter(price).unit))
    if price.allowance:
        return _("{price}, after “{allowance}”").format(price=words, allowance=price.allowance.name)
    return words
