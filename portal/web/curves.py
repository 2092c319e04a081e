"""The curve of a price for people: a drawing, its table, and each cliff in a sentence."""

from __future__ import annotations

from billing.catalog import line_descriptions
from billing.models import Price
from billing.models.plans import model_of
from billing.rules.curve import Point, cliffs, curve
from billing.rules.meters import Meter
from portal.web import drawing
from portal.web import format as say
from portal.web.shapes import Curve, CurveRow


def curve_of(price: Price) -> Curve:
    """The curve of a price in the currency of its plan."""
    currency = price.version.plan.currency
    unit = f"{Meter(price.meter).unit}s"
    points = curve(model_of(price), currency)
    for_whom = f" for {price.tenant.slug}" if price.tenant else ""
    return Curve(
        title=f"{line_descriptions.describe(price)}{for_whom}",
        says=says(price),
        unit=unit,
        plot=drawing.plot(
            [(point.units, point.amount.amount) for point in points],
            marks=(
                say.money(max(point.amount for point in points)),
                f"0 {unit}",
                f"{_units(points[-1])} {unit}",
            ),
        ),
        rows=tuple(_row(point) for point in points),
        cliffs=tuple(
            f"Above {_units(at)} {unit} all of it costs less: {say.money(at.amount)} at {_units(at)}, "
            f"{say.money(above.amount)} just above."
            for at, above in cliffs(points)
        ),
    )


def says(price: Price) -> str:
    """How it depends on the quantity, or what a unit costs; and what it includes."""
    words = line_descriptions.scale(price)
    if not words:
        unit = Meter(price.meter).unit
        words = f"{say.price(price.unit_price, price.version.plan.currency)} per {unit}"
    return f"{words}, after “{price.allowance.name}”" if price.allowance else words


def _row(point: Point) -> CurveRow:
    average = say.money(point.amount * (1 / point.units)) if point.units else ""
    return CurveRow(units=_units(point), amount=say.money(point.amount), average=average)


def _units(point: Point) -> str:
    text = say.hours(point.units * 3600).removesuffix(".00")
    return f"just above {text}" if point.just_above else text
