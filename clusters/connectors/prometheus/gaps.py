"""What an operator should know of a pass's telemetry: what it says nothing of, and what looks misread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from clusters.connectors.prometheus.diagnostics import count_of, naming
from clusters.connectors.prometheus.metrics import HIGHEST_RATIO, PREFERRED
from clusters.connectors.prometheus.runs import Run
from clusters.connectors.prometheus.samples import Samples, left_out

SHORT = 120  # seconds in an hour; that a pod which held its devices for less has no sample is nothing to tell


@dataclass(slots=True)
class TelemetryGaps:
    """Gathers while hours are read. Pods stand once, under their uid."""

    address: str
    silent: dict[str, str] = field(default_factory=dict)
    covered_uids: set[str] = field(default_factory=set)
    sliced: dict[str, str] = field(default_factory=dict)
    readers: list[Samples] = field(default_factory=list)

    def add_reader(self, samples: Samples) -> None:
        """A metric that there is."""
        if samples not in self.readers:
            self.readers.append(samples)

    def add_hours(
        self,
        runs: Mapping[tuple[int, str], Run],
        covered: Iterable[tuple[int, str]],
        readers: Sequence[Samples],
    ) -> None:
        covered = set(covered)
        for at, run in runs.items():
            if at in covered:
                self.covered_uids.add(run.uid)
            elif run.profile and not any(samples.metric.mig for samples in readers):
                self.sliced[run.uid] = run.name
            elif run.seconds(at[0]) >= SHORT:
                self.silent[run.uid] = run.name

    def sentences(self) -> list[str]:
        silent = [name for uid, name in self.silent.items() if uid not in self.covered_uids]
        sentences = []
        if silent and not self.readers:
            sentences.append(
                f"{self.address} has no metric of DCGM that tells how busy devices are, so that the use of "
                f"{count_of(len(silent), 'pod')} is unknown: let it scrape dcgm-exporter, or set the option "
                "utilisation.scope to off."
            )
        elif silent:
            sentences.append(
                f"DCGM tells nothing of {count_of(len(silent), 'pod')}, and how busy their devices were is unknown: "
                f"{naming(silent)}."
            )
        if self.sliced:
            sentences.append(self.about_slices())
        return sentences + self.doubts()

    def about_slices(self) -> str:
        return (
            "The metric that is read does not work on MIG slices, so that the use of "
            f"{count_of(len(self.sliced), 'pod')} is unknown: {naming(list(self.sliced.values()))}. {PREFERRED} does."
        )

    def doubts(self) -> list[str]:
        """Whether a metric is read in the unit that it has here."""
        sentences = [left_out(samples) for samples in self.readers if samples.left_out]
        return sentences + [
            never_above_a_ratio(samples.metric.name)
            for samples in self.readers
            if 0 < samples.peak <= HIGHEST_RATIO
        ]


def never_above_a_ratio(metric: str) -> str:
    return (
        f"{metric} never passed {HIGHEST_RATIO} while devices were held, though it is read as a percentage: if it is a "
        "ratio here, set the option utilisation.divisor to 1."
    )
