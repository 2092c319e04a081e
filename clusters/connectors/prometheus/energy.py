"""What the GPUs of pods drew in each hour: DCGM's power, integrated over the seconds that its samples stand for.

`DCGM_FI_DEV_POWER_USAGE` is "Power draw (in W)" in the list of default counters of dcgm-exporter 3.3; of a pod's GPUs,
not of its node. Not yet seen from a live source with the labels of pods: tests push it into a real Prometheus.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from decimal import Decimal

from clusters.connectors.base import EnergyHour, UsageFact
from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.options import PrometheusOptions, Scope, Utilisation
from clusters.connectors.prometheus.samples import HALF, left_out
from clusters.connectors.prometheus.utilisation import Telemetry

POWER = "DCGM_FI_DEV_POWER_USAGE"
MOST_WATTS = Decimal(5000)
"""Several times what the largest GPU draws. What is above it is no sample: blanks are 9223372036854775794."""


class PodEnergy:
    """Reads power as `Telemetry` reads how busy devices are: a part of the most that there can be."""

    def __init__(self, client: PrometheusClient, options: PrometheusOptions) -> None:
        power = Utilisation(
            scope=Scope.DEVICE, metric=POWER, divisor=MOST_WATTS, matcher=options.utilisation.matcher
        )
        self.telemetry = Telemetry(client, replace(options, utilisation=power))
        self.sliced: set[str] = set()
        self.hours = self.measured = 0  # device-seconds that pods held, and those that samples stand for

    def rows(self, facts: Iterable[UsageFact], hours: range) -> Iterator[EnergyHour]:
        """In order of hours, whose begins are `hours`. Raises `ConnectorError`.

        A slice, or a GPU that pods share, has no meter of its own: what such pods drew is unknown.
        """
        whole: dict[str, UsageFact] = {}
        for fact in facts:
            if fact.gpus and fact.gpu_share == (1, 1) and not fact.mig_profile:
                whole[fact.source_key] = fact
            elif fact.gpus:
                self.sliced.add(fact.source_key)
        for fact in whole.values():
            self.hours += _held(fact, hours)
        for row in self.telemetry.rows(whole.values(), hours):
            self.measured += row.covered
            yield EnergyHour(whole[row.source_key], row.hour, int(row.busy * MOST_WATTS + HALF))

    def notes(self) -> list[str]:
        """Sentences for the operator on what is unknown."""
        notes = [left_out(samples) for samples in self.telemetry.readers if samples.left_out]
        if self.measured < self.hours:
            notes.append(
                f"Of {self.hours:,} GPU-seconds of whole GPUs in the hours read, {POWER} tells the power of "
                f"{self.measured:,}: the energy of the others is unknown, and not counted."
            )
        if self.sliced:
            pods = "1 container" if len(self.sliced) == 1 else f"{len(self.sliced):,} containers"
            notes.append(f"The energy of {pods} with a part of a GPU is unknown: power is measured of GPUs.")
        return notes


def _held(fact: UsageFact, hours: range) -> int:
    """Device-seconds within the hours."""
    until = fact.ended if fact.ended is not None else fact.seen_until
    if fact.started is None or until is None or not hours:
        return 0
    return max(min(until, hours.stop) - max(fact.started, hours.start), 0) * fact.gpus
