"""A report as programs and spreadsheets take it: every quantity and amount a decimal text of 18 significant digits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

from billing.documents.csv import Cell, rows_to_csv
from billing.reports.shapes import LABELS, Capacity, ModelCapacity, Report, Row, Split
from billing.rules.money import rounded_text

DIGITS = 18
HOUR = 3600
PARTS = ("allocated", "effective", "waste", "unknown")
REST = "(all others)"  # what names a row of what a limit left out


def digits(value: Fraction) -> str:
    """As decimal text without exponent, with as many significant digits: `5.14285714285714286`, `0.25`."""
    size = abs(value)
    whole = size.numerator // size.denominator
    if not whole and size:  # as many places more as there are zeros before the first digit
        return rounded_text(value, DIGITS - 1 + len(str((size.denominator - 1) // size.numerator)))
    return rounded_text(value, max(DIGITS - len(str(whole)), 0))


def header(report: Report) -> tuple[str, ...]:
    """The columns of a CSV."""
    return (
        *LABELS[report.by],
        *("standing", "currency", "jobs"),
        *(f"gpu_hours_{part}" for part in PARTS),
        *(f"cost_{part}" for part in PARTS),
        "other_cost",
        *(f"cost_per_hour_{part}" for part in PARTS),
        *("coverage_percent", "utilisation_percent", "sources"),
    )


def as_csv(report: Report) -> Iterator[bytes]:
    """A line for each row. `cost_per_hour` is the cost divided by the hours of the period."""
    return rows_to_csv(header(report), (_cells(row, report) for row in report.rows))


def _cells(row: Row, report: Report) -> Sequence[Cell]:
    shares = (row.seconds.coverage, row.seconds.utilisation)
    names = [row.labels.get(name, "") for name in LABELS[report.by]]
    if row.rest:
        names[-1] = REST
    money = row.money
    return [
        *names,
        row.standing.value,
        row.currency,
        row.jobs,
        *_numbers(row.seconds * Fraction(1, HOUR)),
        *_numbers(money),
        Decimal(digits(row.other)) if money else None,
        *_numbers(money * (1 / report.hours) if money else None),
        *(None if share is None else Decimal(digits(share * 100)) for share in shares),
        " ".join(sorted({of.source for of in row.sources})),
    ]


def _numbers(split: Split | None) -> list[Decimal | None]:
    return [None if split is None else Decimal(text) for text in _parts(split or Split()).values()]


def as_data(report: Report) -> dict[str, Any]:
    """For JSON. A key that has nothing to say is null: the money of use that is not charged, a capacity not known."""
    return {
        "hours": digits(report.hours),
        "by": report.by.value,
        "rows": [_row(row, report) for row in report.rows],
        "jobs": report.jobs,
        "gpu_hours": _parts(report.seconds * Fraction(1, HOUR)),
        "coverage_percent": _percent(report.seconds.coverage),
        "utilisation_percent": _percent(report.seconds.utilisation),
        "cost": {code: _parts(money) for code, money in report.money.items()},
        "other_cost": {code: digits(amount) for code, amount in report.other.items()},
        "capacity": _capacity(report.capacity) if report.capacity else None,
        "notes": report.notes,
    }


def _row(row: Row, report: Report) -> dict[str, Any]:
    money = row.money
    return {
        **({name: row.labels.get(name, "") for name in LABELS[report.by]}),
        "others": row.rest,
        "standing": row.standing.value,
        "currency": row.currency or None,
        "jobs": row.jobs,
        "gpu_hours": _parts(row.seconds * Fraction(1, HOUR)),
        "cost": _parts(money) if money is not None else None,
        "other_cost": digits(row.other) if money is not None else None,
        "cost_per_hour": _parts(money * (1 / report.hours)) if money is not None else None,
        "coverage_percent": _percent(row.seconds.coverage),
        "utilisation_percent": _percent(row.seconds.utilisation),
        "sources": [
            {"source": of.source, "metric": of.metric, "gpu_hours": digits(of.covered / HOUR)}
            for of in row.sources
        ],
        "top_jobs": [
            {
                "pod": job.pod,
                "name": job.name,
                "namespace": job.namespace,
                "user": job.user,
                "gpu_hours": digits(job.gpu_seconds / HOUR),
                "cost": digits(job.cost),
            }
            for job in row.top_jobs
        ],
    }


def _capacity(capacity: Capacity) -> dict[str, Any]:
    return {
        "from": capacity.since,
        "to": capacity.until,
        "gpu_hours": _of_nodes(capacity.whole),
        "models": [{"model": of.gpu_model, "gpu_hours": _of_nodes(of)} for of in capacity.models],
    }


def _of_nodes(of: ModelCapacity) -> dict[str, str]:
    """total = down + drained + idle + allocated, and idle = idle_no_demand + idle_jobs_waiting."""
    parts = {
        "total": of.total,
        "down": of.down,
        "drained": of.drained,
        "idle": of.idle,
        "idle_no_demand": of.unwanted,
        "idle_jobs_waiting": of.waited,
        "allocated": of.allocated,
    }
    return {name: digits(seconds / HOUR) for name, seconds in parts.items()}


def _parts(split: Split) -> dict[str, str]:
    return {part: digits(getattr(split, part)) for part in PARTS}


def _percent(share: Fraction | None) -> str | None:
    return None if share is None else digits(share * 100)
