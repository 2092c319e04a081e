"""The stretches of usage.csv: each has to hold what its job held then, in its line's period, and no second twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import NamedTuple

from .numbers import Stated, second, whole

# What one unit is of the meter; of GPUs a slice may be any part, and so may one of a meter that the operator declared.
SHARES = {
    "gpu-hour": None,
    "cpu-core-hour": Fraction(1, 1000),
    "memory-gib-hour": Fraction(1, 1024),
    "gpu-memory-gib-hour": Fraction(1, 1024),
    "billing-hour": Fraction(1),
}


class Stretch(NamedTuple):
    """One row: `size` units held from `since` to `until` by a job that ran from `started` to `ended`."""

    line: str
    record: str
    job: str
    started: int
    ended: int
    suspended: int
    size: int
    since: int
    until: int
    units: int  # units × seconds, below zero where taken back
    share: Fraction

    @property
    def name(self) -> str:
        return f"line {self.line}, job {self.job}"

    def held(self) -> int:
        """Nobody says when a job was suspended: what it held up to a moment is its part of the whole, rounded down."""
        wall = self.ended - self.started
        active = wall - self.suspended
        return self.size * (
            (self.until - self.started) * active // wall - (self.since - self.started) * active // wall
        )


def read(row: Mapping[str, str]) -> Stretch:
    return Stretch(
        row["line"],
        row["record"],
        row["job"],
        second(row["started"]),
        second(row["ended"]),
        whole(row["suspended"]),
        whole(row["count"]),
        second(row["service_from"]),
        second(row["service_to"]),
        whole(row["units"]),
        Fraction(whole(row["share_num"]), whole(row["share_den"])),
    )


def check(invoice: Stated, usage: Iterable[Mapping[str, str]]) -> tuple[dict[str, Fraction], list[str]]:
    """By line what its stretches hold, in resource-seconds; and sentences for all that is wrong with them."""
    lines = {str(line["position"]): line for line in invoice["lines"]}
    seconds_by_line: dict[str, Fraction] = {}
    wrong: list[str] = []
    shapes: dict[tuple[str, ...], tuple[object, ...]] = {}
    runs: dict[tuple[str, str, bool], list[Stretch]] = {}
    meters: dict[str, str] = {}
    for row in usage:
        line = lines.get(row["line"])
        if line is None:
            wrong.append(f"jobs stand behind line {row['line']}, which the invoice does not have")
            continue
        seconds = Fraction(whole(row["units"]) * whole(row["share_num"]), whole(row["share_den"]))
        seconds_by_line[row["line"]] = seconds_by_line.get(row["line"], Fraction(0)) + seconds
        if not row["record"]:
            if line.get("used_by") is None:
                wrong.append(f"line {row['line']}: a sum stands in the place of its jobs")
            continue
        stretch = read(row)
        wrong += of_stretch(stretch, line)
        other = meters.setdefault(stretch.record, line["meter"])
        if other != line["meter"] and not SHARES.keys() >= {other, line["meter"]}:
            # A run has the meters of a run; what was pushed for a declared meter is of that one alone.
            wrong.append(f"line {stretch.line}: {line['meter']} is no meter of what also counts as {other}")
        back = stretch.units < 0
        shape = (stretch.job, stretch.started, stretch.ended, stretch.suspended)
        if not back and shapes.setdefault((stretch.record,), shape) != shape:
            wrong.append(f"{stretch.name}: its stretches say different things of when it ran")
        if not back and shapes.setdefault((stretch.record, line["meter"]), (stretch.size,)) != (
            stretch.size,
        ):
            wrong.append(f"{stretch.name}: its stretches say different things of how much it held")
        runs.setdefault((stretch.record, line["meter"], back), []).append(stretch)
    for same in runs.values():
        wrong += overlaps(sorted(same, key=lambda each: (each.since, each.until)), lines)
    return seconds_by_line, wrong


def of_stretch(stretch: Stretch, line: Stated) -> Iterator[str]:
    start, end = (second(text) for text in line["service"])
    if line["kind"] != "usage" or line.get("used_by") is not None:
        yield f"{stretch.name}: the line is none that jobs are told of"
    if not start <= stretch.since < stretch.until <= end:
        yield f"{stretch.name}: its stretch lies outside of the line's period, {' to '.join(line['service'])}"
    if not stretch.started <= stretch.since < stretch.until <= stretch.ended:
        yield f"{stretch.name}: its stretch lies outside of the time in which it ran"
        return
    if not 0 <= stretch.suspended <= stretch.ended - stretch.started:
        yield f"{stretch.name}: it was suspended for {stretch.suspended} of {stretch.ended - stretch.started} seconds"
    if not 0 < stretch.share <= 1 or SHARES.get(line["meter"]) not in (None, stretch.share):
        yield f"{stretch.name}: one unit is {stretch.share} of what a {line['meter']} counts"
    if stretch.size <= 0 or not stretch.units:
        yield f"{stretch.name}: it holds nothing"
    most = stretch.held()
    if abs(stretch.units) > most or (abs(stretch.units) != most and not line["by_use"]):
        yield f"{stretch.name}: it held {most} units × seconds then, its row says {abs(stretch.units)}"


def overlaps(runs: list[Stretch], lines: Mapping[str, Stated]) -> Iterator[str]:
    """No second counts twice; `runs` are of one job and meter, in order of time."""
    together: list[Stretch] = []
    end = 0
    for stretch in runs:
        if stretch.since >= end:
            yield from of_same_time(together, lines)
            together = []
        together.append(stretch)
        end = max(end, stretch.until)
    yield from of_same_time(together, lines)


def of_same_time(together: list[Stretch], lines: Mapping[str, Stated]) -> Iterator[str]:
    """By prices that depend on use, several lines share what a job held: its busy units, its idle ones, the rest."""
    if len(together) < 2:
        return
    first, second = together[:2]
    whole = first._replace(until=max(each.until for each in together))
    by_use = all(lines[each.line]["by_use"] for each in together)
    distinct = len({(each.line, each.since, each.until) for each in together}) == len(together)
    if not (by_use and distinct and sum(abs(each.units) for each in together) <= whole.held()):
        yield f"{second.name}: it is billed twice for the same time, also on line {first.line}"
