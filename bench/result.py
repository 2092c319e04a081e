"""Ours and the limit in turn, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from bench.meter import Cost, measure, middle


class DifferentWorkError(Exception):
    """Ours and the limit did not come to the same: the comparison would say nothing."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two. `prepare` is not measured; `outcome` tells what `work` came to, for comparison."""

    work: Callable[[], object]
    prepare: Callable[[], object] = lambda: None
    outcome: Callable[[], object] = lambda: None


@dataclass(frozen=True, slots=True)
class Goal:
    """`at_least`: the part of the limit's speed that ours reaches. `at_most`: how many times its cost."""

    at_least: str = ""
    at_most: str = ""

    def text(self) -> str:
        return f"≥ {self.at_least}" if self.at_least else f"≤ {self.at_most} ×" if self.at_most else "–"

    def missed(self, speed: float) -> bool:
        if self.at_least:
            return speed < Fraction(self.at_least)
        return bool(self.at_most) and speed * Fraction(self.at_most) < 1


@dataclass(frozen=True, slots=True)
class Figure:
    """Something that was counted, beside its goal: at most, or at least where `rises`; None: as it comes."""

    name: str
    value: float
    goal: float | None = None
    rises: bool = False

    @property
    def missed(self) -> bool:
        if self.goal is None:
            return False
        return self.value < self.goal if self.rises else self.value > self.goal

    def text(self) -> str:
        goal = "" if self.goal is None else f" (goal {'≥' if self.rises else '≤'} {self.goal:,g})"
        return f"{self.name}: {self.value:,.{0 if self.value >= 100 else 2}f}{goal}"


@dataclass(frozen=True, slots=True)
class Result:
    """`amount` pieces of work, by us and by the limit."""

    name: str
    title: str
    amount: int
    unit: str
    ours: Cost
    limit: Cost
    goal: Goal = Goal()
    by_wall: bool = False  # latencies are compared by the clock on the wall
    memory: tuple[int, int] | None = None  # KiB that ours took, and the most that it may; None: as it comes
    within: int | None = None  # seconds of wall time that ours may take; None: as long as it takes
    detail: str = ""  # of what the time is made
    figures: tuple[Figure, ...] = ()

    @property
    def speed(self) -> float:
        """Ours as a part of the limit."""
        ours, limit = (self.ours.wall, self.limit.wall) if self.by_wall else (self.ours.cpu, self.limit.cpu)
        return limit / ours if ours else float("inf")

    @property
    def missed(self) -> bool:
        too_large = self.memory is not None and self.memory[0] > self.memory[1]
        too_slow = self.within is not None and self.ours.wall > self.within
        counted = any(figure.missed for figure in self.figures)
        return too_large or too_slow or counted or self.goal.missed(self.speed)

    def rate(self, cost: Cost) -> float:
        """Pieces a second of CPU, or of wall time where that is compared."""
        seconds = cost.wall if self.by_wall else cost.cpu
        return self.amount / seconds if seconds else float("inf")


def in_turn(postmaster: int, ours: Side, limit: Side, *, rounds: int) -> tuple[Cost, Cost]:
    """Medians of both. Raises DifferentWorkError if they came to different outcomes."""
    costs: tuple[list[Cost], list[Cost]] = ([], [])
    for _ in range(rounds):
        outcomes = []
        for side, samples in zip((ours, limit), costs, strict=True):
            side.prepare()
            samples.append(measure(side.work, postmaster))
            outcomes.append(side.outcome())
        if outcomes[0] != outcomes[1]:
            raise DifferentWorkError(f"ours {outcomes[0]}, limit {outcomes[1]}")
    return middle(costs[0]), middle(costs[1])
