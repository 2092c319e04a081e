"""Meters that a file declares: what programs push sums of."""

from __future__ import annotations

from typing import Annotated, ClassVar

from clusters import meters
from clusters.models import DeclaredMeter
from clusters.models.meters import LONGEST_NAME, MOST_PARTS
from portal.config_file.entries import Entry, Rule, key


class MeterEntry(Entry, frozen=True, kw_only=True):
    """What is counted besides what runs hold, and in which unit it is priced."""

    noun: ClassVar[str] = "meter"
    named_by: ClassVar[str] = "name"
    name: Annotated[str, Rule(longest=LONGEST_NAME)]
    title: Annotated[str, Rule(longest=meters.LONGEST_TITLE)]
    unit: Annotated[str, Rule(longest=meters.LONGEST_WORDS)]
    counted: Annotated[str, Rule(longest=meters.LONGEST_WORDS)] = ""
    per_unit: Annotated[int, Rule(lowest=1, highest=MOST_PARTS)] = 1
    decimals: Annotated[int, Rule(highest=meters.MOST_DECIMALS)] = 0
    dimensions: list[str] = key(default_factory=list)
    unit_code: Annotated[str, Rule(longest=3)] = "C62"

    @property
    def identity(self) -> str:
        return self.name

    def write(self) -> DeclaredMeter:
        """Have the meter be so. Raises MeterError."""
        return meters.declare_meter(**self.columns() | {"dimensions": self.dimensions or []})


def meter_entry(meter: DeclaredMeter) -> MeterEntry:
    """As a file has it."""
    return MeterEntry(
        name=meter.name,
        title=meter.title,
        unit=meter.unit,
        counted=meter.counted,
        per_unit=meter.per_unit,
        decimals=meter.decimals,
        dimensions=list(meter.dimensions),
        unit_code=meter.unit_code,
    )
