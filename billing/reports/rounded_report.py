"""A report as it is shown, in hundredths of an hour and in cents: its parts add up to their row, and rows to the total.

The totals and what was allocated are rounded to the nearest, so they are the same whatever a report is by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from billing.reports.capacity_use import Part
from billing.reports.shapes import ZERO, Capacity, ModelCapacity, Report, Split
from billing.rules.money import nearest
from billing.rules.rounded_sums import HOURS, minor_unit, rounded_table, rounded_units

IDLE = (Part.DOWN, Part.NO_DEMAND, Part.WAITED)


def rounded_report(report: Report) -> Report:
    """The same rows; each amount of money is of the GPUs."""
    seconds = iter(_splits([row.seconds for row in report.rows], HOURS))
    money = {
        code: iter(
            _splits(
                [row.money for row in report.rows if row.money and row.currency == code], minor_unit(code)
            )
        )
        for code in report.money
    }
    return replace(
        report,
        rows=[
            replace(row, seconds=next(seconds), money=next(money[row.currency]) if row.money else None)
            for row in report.rows
        ],
        capacity=_capacity(report.capacity) if report.capacity else None,
    )


def _splits(splits: Sequence[Split], unit: Fraction) -> list[Split]:
    whole = sum(splits, Split())
    totals = rounded_units([part / unit for part in _parts(whole)], nearest(whole.allocated / unit))
    rows = rounded_table([[part / unit for part in _parts(split)] for split in splits], totals)
    return [
        Split(sum(row) * unit, effective * unit, (effective + waste) * unit)
        for row in rows
        for effective, waste, _unknown in [row]
    ]


def _parts(split: Split) -> tuple[Fraction, ...]:
    return split.effective, split.waste, split.unknown


def rounded_use(use: Mapping[Part, Fraction], unit: Fraction) -> dict[Part, Fraction]:
    """Where capacity went, or what was allocated alone, in multiples of the unit."""
    units = {part: value / unit for part, value in use.items()}
    shown = {Part.ALLOCATED: nearest(units[Part.ALLOCATED])}
    if Part.CAPACITY in units:
        shown[Part.CAPACITY] = nearest(units[Part.CAPACITY])
        rest = shown[Part.CAPACITY] - shown[Part.ALLOCATED]
        shown |= zip(IDLE, rounded_units([units[part] for part in IDLE], rest), strict=True)
    worked = [units[Part.EFFECTIVE], units[Part.ZERO] + units[Part.LOW], units[Part.UNKNOWN]]
    shown[Part.EFFECTIVE], waste, shown[Part.UNKNOWN] = rounded_units(worked, shown[Part.ALLOCATED])
    shown[Part.ZERO], shown[Part.LOW] = rounded_units([units[Part.ZERO], units[Part.LOW]], waste)
    return {part: shown[part] * unit for part in use}


def _capacity(capacity: Capacity) -> Capacity:
    """By the totals of `rounded_use`, which a page shows beside it."""
    whole = [part / HOURS for part in _of_nodes(capacity.whole)]
    down, drained, unwanted, waited, allocated = whole
    held = nearest(allocated)
    off, *idle = rounded_units([down + drained, unwanted, waited], nearest(sum(whole, ZERO)) - held)
    totals = [*rounded_units([down, drained], off), *idle, held]
    rows = rounded_table([[part / HOURS for part in _of_nodes(of)] for of in capacity.models], totals)
    return replace(
        capacity,
        models=tuple(_model(of.gpu_model, row) for of, row in zip(capacity.models, rows, strict=True)),
    )


def _of_nodes(of: ModelCapacity) -> tuple[Fraction, ...]:
    return of.down, of.drained, of.unwanted, of.waited, of.allocated


def _model(gpu_model: str, row: Sequence[int]) -> ModelCapacity:
    down, drained, unwanted, waited, allocated = (units * HOURS for units in row)
    return ModelCapacity(gpu_model, down, drained, unwanted + waited + allocated, allocated, waited)
