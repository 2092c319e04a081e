"""Energy that sources measured, as sums of the meter by which the cluster counts it: what plans price, in joules.

Slurm tells what a job's nodes took in all, when it has ended: its sum is of the last second of the run, and so belongs
to the billing period, owner and price of its end. Where hours are told, as of pods, each is a sum of its own. What was
not measured is unknown: it is counted for the operator, and is never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from clusters.connectors.base import EnergyHour, UsageFact
from clusters.models import Cluster, ClusterError, DeclaredMeter
from clusters.models.meters import JOULES
from portal.excerpt import quoted

PREFIX = "energy:"
"""Of the source key of a sum: the key of its run follows."""

NO_VALUES = frozenset({-1, -2, 0, 2**32 - 1, 2**32 - 2, 2**64 - 1, 2**64 - 2})
"""What Slurm prints where nothing was measured: NO_VAL and INFINITE of 32 and 64 bits, also signed, and 0."""

MOST_WATTS = 100_000
"""A node that took more in the mean did not: whole racks take that."""

_LARGEST = 2**50  # joules; what rating keeps is 3,600 times as much, in 63 bits
_HOUR = 3600
_NO_VALUE = "Of {runs} that ended there is no energy: it was not measured, so it is unknown, and not counted."
_IMPOSSIBLE = (
    "Of {runs} the energy cannot be true (more than {watts} kW a node): it is unknown, and not counted."
)


def energy_meter(name: str) -> DeclaredMeter | None:
    """The meter that may count energy; None for "". Raises ClusterError for one that is not per kWh, or not there."""
    if not name:
        return None
    meter = DeclaredMeter.objects.filter(name=name).first()
    if meter is None:
        raise ClusterError(
            f"energy_meter is {quoted(name)}, and no meter of that name is declared: declare it with unit kWh, counted "
            f"J and per_unit {JOULES}."
        )
    refuse_other_units(meter)
    return meter


def refuse_other_units(meter: DeclaredMeter) -> None:
    """Raise ClusterError for a meter whose unit is not made of 3,600,000 joules."""
    if meter.parts != JOULES:
        raise ClusterError(
            f"{meter.name} has {meter.parts:,} of the smallest quantity in its unit, and energy is counted in joules: "
            f"name a meter with unit kWh, counted J, per_unit {JOULES} and no decimals."
        )


@dataclass(slots=True)
class EnergySums:
    """Makes sums of what was measured, and counts what was not. `meter` is the name of the cluster's energy meter.

    `by_hour`: the source tells of hours, so that runs are not asked for the whole.
    """

    meter: str
    by_hour: bool = False
    unknown: int = 0
    impossible: int = 0

    @classmethod
    def of(cls, cluster: Cluster) -> EnergySums | None:
        """None for a cluster whose energy is not counted."""
        name = cluster.energy_meter_id
        return cls(name, by_hour=cluster.kind == Cluster.Kind.PROMETHEUS) if name else None

    def of_runs(self, runs: Iterable[UsageFact]) -> Iterator[UsageFact]:
        """A sum of each run that has ended and was measured."""
        for run in runs if not self.by_hour else ():
            if run.meter or run.started is None or run.ended is None or run.ended == run.started:
                continue
            if run.energy is None or run.energy in NO_VALUES:
                self.unknown += 1
            elif not 0 < run.energy <= min(_most(run, run.ended - run.started), _LARGEST):
                self.impossible += 1
            else:
                yield self._sum(run, run.source_key, run.ended - 1, run.ended, run.energy, state=run.state)

    def of_hours(self, hours: Iterable[EnergyHour]) -> Iterator[UsageFact]:
        """A sum of each hour of a run. What the run became is not said: hours before its end do not change by it."""
        for one in hours:
            run, ends = one.run, one.run.ended if one.run.ended is not None else one.run.seen_until
            started, ended = max(run.started or 0, one.hour), min(ends or 0, one.hour + _HOUR)
            if started < ended and one.joules > 0:
                key = f"{run.source_key}/{datetime.fromtimestamp(one.hour, UTC):%Y-%m-%dT%HZ}"
                yield self._sum(run, key, started, ended, one.joules, state="")

    def _sum(
        self, run: UsageFact, key: str, started: int, ended: int, joules: int, *, state: str
    ) -> UsageFact:
        return UsageFact(
            f"{PREFIX}{key}",
            run.account,
            run.user,
            run.job_id,
            queue=run.queue,
            qos=run.qos,
            priority_class=run.priority_class,
            gpu_share=(1, JOULES),
            started=started,
            ended=ended,
            state=state,
            meter=self.meter,
            quantity=joules,
        )

    def notes(self) -> list[str]:
        """Sentences for the operator on what is unknown."""
        watts = MOST_WATTS // 1000
        counted = ((_NO_VALUE, self.unknown), (_IMPOSSIBLE, self.impossible))
        return [
            text.format(runs="1 run" if number == 1 else f"{number:,} runs", watts=watts)
            for text, number in counted
            if number
        ]


def _most(run: UsageFact, seconds: int) -> int:
    return MOST_WATTS * max(run.nodes, 1) * seconds
