"""Meters as plans see them: declared ones beside those of what runs hold, and the units in which people read both."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from django.utils.translation import gettext as _

from billing.models import Price, Resource
from billing.rules.meters import Meter, plural
from clusters.models import DeclaredMeter

_OF_RUNS: Mapping[str, str] = {meter.resource: plural(meter.unit) for meter in Meter}
_LABELS: Mapping[str, str] = {meter.resource: meter.label for meter in Meter}


def units_of(resources: Collection[str]) -> dict[str, str]:
    """By resource what stands behind a number of it: `GPU-hours`, `million tokens`. One query where any is declared."""
    declared = sorted(set(resources) - set(Resource.values))
    units = {name: unit for name, unit in _OF_RUNS.items() if name in resources}
    if declared:
        units |= dict(DeclaredMeter.objects.filter(name__in=declared).values_list("name", "unit"))
    return units


def titles_of(resources: Collection[str]) -> dict[str, str]:
    """By resource what an invoice calls it, in the order given. One query where any is declared."""
    declared = sorted(set(resources) - set(Resource.values))
    titles = {name: _(label) for name, label in _LABELS.items()}
    if declared:
        titles |= dict(DeclaredMeter.objects.filter(name__in=declared).values_list("name", "title"))
    return {name: titles.get(name, name) for name in resources}


def find(name: str) -> DeclaredMeter | None:
    """The declared meter of that name."""
    return DeclaredMeter.objects.filter(name=name).first()


def names() -> list[str]:
    """Those of all declared meters, in order."""
    return list(DeclaredMeter.objects.order_by("name").values_list("name", flat=True))


def fill(price: Price, declared: DeclaredMeter | None) -> None:
    """Have the price be per unit of its meter: of the declared one, or of what runs hold."""
    if declared is None:
        price.resource, price.unit, price.title, price.unit_code = Meter(price.meter).resource, "", "", ""
        return
    price.resource = declared.name
    price.unit, price.title, price.unit_code = declared.unit, declared.title, declared.unit_code


def unknown_dimension(pairs: Collection[str], declared: DeclaredMeter) -> str:
    """The first that is not `name=value` with a name that the meter has; "" for none."""
    for pair in pairs:
        name, _, value = pair.partition("=")
        if name not in declared.dimensions or not value or value != value.strip() or "=" in value:
            return pair
    return ""
