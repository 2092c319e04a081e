"""The values of a report: exact fractions, of GPU-seconds and of major units of one currency."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

ZERO = Fraction(0)


class By(StrEnum):
    """What the rows of a report stand for."""

    TENANT = "tenant"
    PROJECT = "project"
    NAMESPACE = "namespace"  # the scheduler's account
    POD = "pod"  # a run: pod or job
    MODEL = "model"
    USER = "user"


LABELS: Mapping[By, tuple[str, ...]] = {
    By.TENANT: ("tenant",),
    By.PROJECT: ("tenant", "project"),
    By.NAMESPACE: ("cluster", "namespace"),
    By.POD: ("tenant", "cluster", "namespace", "user", "pod", "name", "model"),
    By.MODEL: ("model",),
    By.USER: ("user",),
}
"""What names a row; each text may be empty. A tenant is named by its slug."""


class Standing(StrEnum):
    """What became of use. Only what is charged has money."""

    CHARGED = "charged"
    WAIVED = "waived"
    UNPRICED = "unpriced"
    UNASSIGNED = "unassigned"


@dataclass(frozen=True, slots=True)
class Split:
    """allocated = effective + waste + unknown, of one quantity."""

    allocated: Fraction = ZERO
    effective: Fraction = ZERO
    covered: Fraction = ZERO  # by telemetry: effective + waste

    @property
    def waste(self) -> Fraction:
        return self.covered - self.effective

    @property
    def unknown(self) -> Fraction:
        return self.allocated - self.covered

    @property
    def coverage(self) -> Fraction | None:
        """Part of what was held that telemetry covered; None of nothing."""
        return self.covered / self.allocated if self.allocated else None

    @property
    def utilisation(self) -> Fraction | None:
        """Part of what was covered that the devices worked: a mean weighted by GPU-hours. None where none was."""
        return self.effective / self.covered if self.covered else None

    def __add__(self, other: Split) -> Split:
        return Split(
            self.allocated + other.allocated, self.effective + other.effective, self.covered + other.covered
        )

    def __mul__(self, factor: Fraction) -> Split:
        return Split(self.allocated * factor, self.effective * factor, self.covered * factor)


@dataclass(frozen=True, slots=True)
class Source:
    """From where the figures of a row were taken, and for how many GPU-seconds of it."""

    source: str  # as `clusters.connectors.base.BusySource`
    metric: str
    covered: Fraction


@dataclass(frozen=True, slots=True)
class Job:
    """One of the most expensive jobs of a row. `cost` without CPU and memory."""

    pod: str
    name: str
    namespace: str
    user: str
    gpu_seconds: Fraction
    cost: Fraction
    record: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """What one group used, of one standing and in one currency."""

    labels: Mapping[str, str]  # as LABELS has them; all empty where `rest`
    standing: Standing
    currency: str  # "" unless charged
    seconds: Split  # GPU-seconds: a slice counts as its part
    money: Split | None  # for the GPUs; None unless charged
    other: Fraction = ZERO  # money that is charged for anything else: CPU, memory
    jobs: int = 0  # that held GPUs in the period
    sources: tuple[Source, ...] = ()
    top_jobs: tuple[Job, ...] = ()
    rest: bool = False  # all that a limit left out

    @property
    def cost(self) -> Fraction:
        """All that is charged."""
        return (self.money.allocated if self.money else ZERO) + self.other


@dataclass(frozen=True, slots=True)
class ModelCapacity:
    """GPU-seconds that one model's nodes had, by their state, and what runs held of it. Idle may be negative.

    `waited` is the part of idle in which a job waited for the model.
    """

    gpu_model: str
    down: Fraction
    drained: Fraction
    up: Fraction
    allocated: Fraction
    waited: Fraction = ZERO

    @property
    def total(self) -> Fraction:
        return self.down + self.drained + self.up

    @property
    def idle(self) -> Fraction:
        return self.up - self.allocated

    @property
    def unwanted(self) -> Fraction:
        """The part of idle in which nothing waited."""
        return self.idle - self.waited


class Nodes(NamedTuple):
    """GPUs of one model that nodes had, whatever their state, in [since, until), epoch seconds."""

    gpu_model: str
    gpus: int
    since: int
    until: int


@dataclass(frozen=True, slots=True)
class Capacity:
    """total = down + drained + idle + allocated, of the part [since, until) that is known of nodes."""

    since: int
    until: int
    models: tuple[ModelCapacity, ...]
    spans: tuple[Nodes, ...] = ()  # what the totals are made of, those of the same seconds together

    def within(self, since: int, until: int) -> dict[str, int]:
        """GPU-seconds by model that nodes had in [since, until), of models that had any."""
        seconds: dict[str, int] = defaultdict(int)
        for span in self.spans:
            if (length := min(span.until, until) - max(span.since, since)) > 0 and span.gpus:
                seconds[span.gpu_model] += span.gpus * length
        return seconds

    @property
    def whole(self) -> ModelCapacity:
        return ModelCapacity(
            "",
            *(
                sum((getattr(of, name) for of in self.models), ZERO)
                for name in ("down", "drained", "up", "allocated", "waited")
            ),
        )


@dataclass(frozen=True)  # without slots: sums are kept
class Report:
    """What was held of a cluster, or by a tenant, in [since, until): epoch seconds."""

    by: By
    since: int
    until: int
    rows: list[Row]
    jobs: int  # that held GPUs, each once
    capacity: Capacity | None = None  # None where nothing is known of it
    notes: list[str] = field(default_factory=list)  # sentences: what the figures do not tell

    @property
    def hours(self) -> Fraction:
        return Fraction(self.until - self.since, 3600)

    @cached_property
    def seconds(self) -> Split:
        return sum((row.seconds for row in self.rows), Split())

    @cached_property
    def money(self) -> dict[str, Split]:
        """Of the GPUs, by currency."""
        return _sums((row.currency, row.money) for row in self.rows if row.money is not None)

    @cached_property
    def other(self) -> dict[str, Fraction]:
        """Of anything else, by currency."""
        found = dict.fromkeys(self.money, ZERO)
        for row in self.rows:
            if row.money is not None:
                found[row.currency] += row.other
        return found

    def of(self, standing: Standing) -> Split:
        return sum((row.seconds for row in self.rows if row.standing is standing), Split())


def _sums(parts: Iterable[tuple[str, Split]]) -> dict[str, Split]:
    found: dict[str, Split] = {}
    for currency, part in parts:
        found[currency] = found.get(currency, Split()) + part
    return dict(sorted(found.items()))
