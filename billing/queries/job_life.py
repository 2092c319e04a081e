"""The life of one job: how long it waited and ran, where it is cut, and how busy its devices were."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from django.db import connection

from clusters.models.meters import JOULES
from portal.sql_files import Statements

sql = Statements(__file__, "job_life.sql")

HOUR = 3600
STRETCHES = 96  # of a strip, at most


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some hours of a run, in device-seconds; what was held and not covered is unknown."""

    since: int  # epoch seconds
    until: int
    held: Fraction  # without the suspended seconds, which have no place: each stretch has its part of them
    covered: int
    busy: Fraction

    @property
    def utilization(self) -> Fraction | None:
        """Of what was covered; None where nothing was."""
        return self.busy / self.covered if self.covered else None


@dataclass(frozen=True, slots=True)
class Energy:
    """What was measured of a job, by its cluster's meter; `joules` is None where nothing was: it is unknown."""

    title: str
    unit: str
    joules: int | None

    @property
    def quantity(self) -> Fraction | None:
        """In the meter's unit."""
        return None if self.joules is None else Fraction(self.joules, JOULES)


@dataclass(frozen=True, slots=True)
class Beyond:
    """What a pod used beyond its requests, by one meter."""

    title: str
    unit: str
    quantity: Fraction


@dataclass(frozen=True, slots=True)
class JobLife:
    """Moments are epoch seconds, None where unknown; `stretches` are empty of jobs without GPUs or telemetry."""

    submitted: int | None
    eligible: int | None
    started: int | None
    finish: int | None  # its end, or as far as it was seen
    ended: int | None
    suspended: int  # seconds
    time_limit: int | None  # seconds
    stretches: Sequence[Stretch]
    energy: Energy | None = None  # where its cluster counts it
    beyond: Sequence[Beyond] = ()

    @property
    def waited(self) -> int | None:
        """Seconds from its submission to its start; None while that is unknown."""
        if self.submitted is None or self.started is None:
            return None
        return max(self.started - self.submitted, 0)

    @property
    def ran(self) -> int | None:
        """Seconds from its start, those suspended included."""
        return None if self.started is None or self.finish is None else self.finish - self.started

    @property
    def covered(self) -> int:
        return sum(one.covered for one in self.stretches)

    @property
    def held(self) -> Fraction:
        return sum((one.held for one in self.stretches), Fraction(0))

    @property
    def busy(self) -> Fraction:
        return sum((one.busy for one in self.stretches), Fraction(0))


def life(record: int, *, with_measured: bool = True) -> JobLife | None:
    """Of a job of the tenant in whose scope it runs; None where it has none of that record. Three queries, two without
    what was measured.
    """
    with connection.cursor() as cursor:
        cursor.execute(sql.RUN, {"record": record})
        row = cursor.fetchone()
        if row is None:
            return None
        submitted, eligible, started, finish, ended, suspended, limit, gpus = row
        energy, beyond = None, list[Beyond]()
        if with_measured:
            cursor.execute(sql.MEASURED, {"record": record})
            energy, beyond = _measured(cursor.fetchall())
        if started is None or finish is None or not gpus or finish <= started:
            return JobLife(submitted, eligible, started, finish, ended, suspended, limit, (), energy, beyond)
        first = started // HOUR * HOUR
        hours = -(-(finish - first) // HOUR)
        width = -(-hours // STRETCHES) * HOUR
        cursor.execute(sql.STRETCHES, {"record": record, "since": first, "width": width})
        sums = {number: (busy, covered) for number, busy, covered in cursor.fetchall()}
    stretches = []
    for number in range(-(-(finish - first) // width)) if sums else ():
        since, until = max(first + number * width, started), min(first + (number + 1) * width, finish)
        busy, covered = sums.get(number, (0, 0))
        held = max(
            Fraction((until - since) * gpus * (finish - started - suspended), finish - started),
            Fraction(covered),
        )
        stretches.append(Stretch(since, until, held, int(covered), Fraction(busy)))
    return JobLife(submitted, eligible, started, finish, ended, suspended, limit, stretches, energy, beyond)


def _measured(
    rows: Iterable[tuple[str, str, str, int, Decimal | None]],
) -> tuple[Energy | None, list[Beyond]]:
    energy, beyond = None, list[Beyond]()
    for kind, title, unit, parts, quantity in rows:
        if kind == "energy":
            energy = Energy(title, unit, None if quantity is None else int(quantity))
        elif quantity:
            beyond.append(Beyond(title, unit, Fraction(quantity) / parts))
    return energy, beyond
