"""The curve of a price for people: a drawing, its table, and each cliff in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.translation import gettext as _

from billing.catalog import line_descriptions
from billing.catalog.price_words import price_words
from billing.models import Price
from billing.models.plans import model_of, priced_meter
from billing.rules.curve import Point, cliffs, curve
from billing.rules.meters import plural
from billing.rules.money import Money
from portal.web import drawing
from portal.web import format as say
from portal.web.drawing import Plot


@dataclass(frozen=True, kw_only=True)
class Curve:
    """What a price comes to by quantity; `cliffs` are sentences where a little more costs less."""

    title: str
    text: str  # "graduated: up to 100 at $3.00, …"
    unit: str  # "GPU-hours"
    plot: Plot
    rows: Sequence[tuple[str, Money, Money | None]]  # units, total, average price
    cliffs: Sequence[str]


def curve_of(price: Price) -> Curve:
    """The curve of a price in the currency of its plan."""
    currency = price.version.plan.currency
    unit = plural(priced_meter(price).unit)
    points = curve(model_of(price), currency)
    title = line_descriptions.describe(price)
    top = say.money(max(point.amount for point in points))
    return Curve(
        title=_("{price} for {tenant}").format(price=title, tenant=price.tenant.slug)
        if price.tenant
        else title,
        text=price_words(price),
        unit=unit,
        plot=drawing.plot(
            [(point.units, point.amount.amount) for point in points],
            marks=(top, f"0 {unit}", f"{_units(points[-1])} {unit}"),
        ),
        rows=[
            (_units(point), point.amount, point.amount * (1 / point.units) if point.units else None)
            for point in points
        ],
        cliffs=[
            _("Above {units} {unit} the total drops: {amount} at {units}, {less} just above.").format(
                units=_units(at), unit=unit, amount=say.money(at.amount), less=say.money(above.amount)
            )
            for at, above in cliffs(points)
        ],
    )


def _units(point: Point) -> str:
    text = say.hours(point.units * 3600).removesuffix(".00")
    return _("just above {units}").format(units=text) if point.just_above else text
