"""Amounts in the administration, written as the pages write them."""

from __future__ import annotations

from operator import attrgetter

from django.contrib import admin
from django.db.models import Model

from billing.rules.formatting import money_text, price_text
from billing.rules.money import Money
from portal.admin import Display

NOTHING = "–"


def money_of(minor: int, currency: str) -> str:
    """`€1,250.00` of 125000 minor units."""
    return money_text(Money.from_minor(minor, currency))


def money(field: str, title: str, *, currency: str = "currency") -> Display:
    """A method of an admin class: minor units as money; `currency` is the path to it from the row."""

    @admin.display(description=title, ordering=field)
    def show(_: object, row: Model) -> str:
        minor = getattr(row, field)
        return NOTHING if minor is None else money_of(minor, attrgetter(currency)(row))

    return show


def price(field: str, title: str, *, currency: str = "currency") -> Display:
    """As `money`, of major units with all their decimals."""

    @admin.display(description=title, ordering=field)
    def show(_: object, row: Model) -> str:
        return price_text(getattr(row, field), attrgetter(currency)(row)) or NOTHING

    return show
