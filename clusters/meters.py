"""Declaring meters: what programs may push sums of. Which plans charge them, and at which prices, is billing's."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from django.db import transaction

from clusters.connectors.base import ConnectorError, UsageFact
from clusters.connectors.sums import MeterUnit
from clusters.messages import SENTENCES
from clusters.models import Cluster, DeclaredMeter
from clusters.models.meters import DIMENSION, JOULES, LONGEST_NAME, MOST_PARTS, NAME
from portal.errors import CodedError
from portal.excerpt import quoted

BUILT_IN = frozenset(
    {"gpu", "cpu", "memory", "gpu-memory", "billing"}
    | {"gpu-hour", "cpu-core-hour", "memory-gib-hour", "gpu-memory-gib-hour", "billing-hour"}
)
"""What runs hold, and the meters of that: names that no declared meter takes."""

LONGEST_WORDS = 40
LONGEST_TITLE = 60
MOST_DECIMALS = 9
MOST_DIMENSIONS = 10
_CODE = re.compile(r"[A-Z0-9]{2,3}")


class MeterError(CodedError):
    """A meter cannot be declared so; the message says why and what to do."""

    sentences = SENTENCES


@transaction.atomic
def declare_meter(
    *,
    name: str,
    title: str,
    unit: str,
    counted: str = "",
    per_unit: int = 1,
    decimals: int = 0,
    dimensions: Collection[str] = (),
    unit_code: str = "C62",
) -> DeclaredMeter:
    """Have the meter of that name be so; declared again, the same. `counted` is `unit` where it is left out.

    As soon as a sum of it came, only dimensions can be added: quantities are stored by its unit. Raises MeterError.
    """
    columns = {
        "title": title.strip(),
        "unit": unit.strip(),
        "counted": counted.strip() or unit.strip(),
        "per_unit": per_unit,
        "decimals": decimals,
        "dimensions": sorted(set(dimensions)),
        "unit_code": unit_code,
    }
    _refuse(name, columns)
    meter = DeclaredMeter.objects.select_for_update().filter(name=name).first() or DeclaredMeter(name=name)
    changed = [column for column, value in columns.items() if getattr(meter, column) != value]
    if meter.pk and not changed:
        return meter
    if meter.first_used_at is not None:
        if changed != ["dimensions"]:
            raise MeterError("meter-used", meter=name, unit=meter.unit)
        if missing := sorted(set(meter.dimensions) - set(dimensions)):
            raise MeterError("meter-dimension-used", meter=name, name=missing[0])
    for column, value in columns.items():
        setattr(meter, column, value)
    if meter.parts != JOULES and Cluster.objects.filter(energy_meter__name=name).exists():
        raise MeterError("meter-energy", meter=name, joules=f"{JOULES}")
    meter.save()
    return meter


@transaction.atomic
def remove_meter(*, meter: DeclaredMeter) -> None:
    """Delete a meter of which no sum ever came. Raises MeterError for any other."""
    stored = DeclaredMeter.objects.select_for_update().get(pk=meter.pk)
    if stored.first_used_at is not None:
        raise MeterError("meter-with-usage", meter=stored.name)
    stored.delete()


def load_units() -> dict[str, MeterUnit]:
    """All meters as sums are read by them. They stay as they are until the transaction ends."""
    rows = DeclaredMeter.objects.raw("SELECT * FROM clusters_declaredmeter ORDER BY name FOR KEY SHARE")
    return {row.name: MeterUnit(row.name, row.decimals, row.parts, tuple(row.dimensions)) for row in rows}


def hold(facts: Iterable[UsageFact], *, moment: datetime) -> None:
    """Keep the meters of these facts as they are, from now on, in the transaction that stores the facts.

    Raises ConnectorError where a meter is no longer as it was when they were read.
    """
    parts = {fact.meter: fact.gpu_share[1] for fact in facts if fact.meter}
    if not parts:
        return
    units = load_units()
    for name, number in parts.items():
        if name not in units or units[name].parts != number:
            raise ConnectorError("tokens-meter-changed", retry=True, meter=name)
    mark_used(parts, moment=moment)


def mark_used(names: Collection[str], *, moment: datetime) -> None:
    """Sums of these meters were stored: from now on they keep their unit. Marked again, nothing changes."""
    unused = DeclaredMeter.objects.filter(name__in=names, first_used_at=None)
    keys = list(unused.order_by("pk").select_for_update(no_key=True).values_list("pk", flat=True))
    unused.filter(pk__in=keys).update(first_used_at=moment)


def _refuse(name: str, columns: dict[str, object]) -> None:
    if not re.fullmatch(NAME.strip("^$"), name) or len(name) > LONGEST_NAME:
        raise MeterError("meter-name", name=quoted(name), most=LONGEST_NAME)
    if name in BUILT_IN:
        raise MeterError("meter-built-in", name=name)
    for column, most in (("title", LONGEST_TITLE), ("unit", LONGEST_WORDS), ("counted", LONGEST_WORDS)):
        words = str(columns[column])
        if not words or len(words) > most or not words.isprintable():
            raise MeterError("meter-words", field=column, most=most)
    per_unit, decimals = columns["per_unit"], columns["decimals"]
    assert isinstance(per_unit, int) and isinstance(decimals, int)  # noqa: S101, PT018 - by their types
    if not 0 <= decimals <= MOST_DECIMALS or not 1 <= per_unit * 10**decimals <= MOST_PARTS:
        raise MeterError("meter-parts", most=f"{MOST_PARTS:,}", decimals=MOST_DECIMALS)
    dimensions = columns["dimensions"]
    assert isinstance(dimensions, Sequence)  # noqa: S101
    if len(dimensions) > MOST_DIMENSIONS:
        raise MeterError("meter-dimensions", most=MOST_DIMENSIONS)
    for dimension in dimensions:
        if not re.fullmatch(DIMENSION.strip("^$"), dimension):
            raise MeterError("meter-dimension-name", name=quoted(dimension))
    if not _CODE.fullmatch(str(columns["unit_code"])):
        raise MeterError("meter-unit-code", code=quoted(str(columns["unit_code"])))
