"""Which run a device's labels name: pods by uid, else by namespace and name, under all spellings of exporters.

And of which runs telemetry says nothing, or looks misread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from clusters.connectors.base import UsageFact
from clusters.connectors.prometheus.catalog import HIGHEST_RATIO, PREFERRED
from clusters.connectors.prometheus.coverage import HOUR
from clusters.connectors.prometheus.facts import count_of, naming
from clusters.connectors.prometheus.responses import Labels, first
from clusters.connectors.prometheus.samples import Samples, left_out

POD_UIDS = ("pod_uid", "exported_pod_uid")
# Namespace, pod, container. The exporter's own pod stands under the last where its target's labels win, so that the
# workload's are exported_*; a pod that holds no devices is nobody's run, and so is passed over.
SPELLINGS = (
    ("exported_namespace", "exported_pod", "exported_container"),
    ("pod_namespace", "pod_name", "container_name"),
    ("namespace", "pod", "container"),
)
NAMES = (*POD_UIDS, *(name for spelling in SPELLINGS for name in spelling))


@dataclass(frozen=True, slots=True)
class Run:
    """What a fact says that matters here. `until`: epoch second to which it is known to have held its devices."""

    key: str
    uid: str
    container: str
    name: str  # namespace/pod
    node: str
    model: str
    profile: str
    gpus: int
    started: int
    until: int

    def seconds(self, hour: int) -> int:
        """That it held its devices in an hour."""
        return max(min(self.until, hour + HOUR) - max(self.started, hour), 0)


@dataclass(frozen=True, slots=True)
class RunMatch:
    """Runs that a device's labels can mean, and how the pod is spelled there. `container`: "" where it is not told."""

    runs: Sequence[Run]
    spelled: str = ""
    container: str = ""

    def resolve(self, runs: Sequence[Run], labels: Labels) -> Run | None:
        """The one of `runs`, all of one pod, that holds this device; None where that cannot be told."""
        if len(runs) > 1:
            runs = [run for run in runs if run.container == self.container] or runs
        if len(runs) > 1:
            runs = [run for run in runs if run.profile == labels.get("GPU_I_PROFILE", "")] or runs
        if len(runs) != 1 or (runs[0].profile and not labels.get("GPU_I_ID")):
            return None  # a slice's own use is told of the slice, never of its GPU
        return runs[0]


NO_MATCH = RunMatch(())


class Runs:
    """Finds runs by the labels of devices."""

    def __init__(self, facts: Iterable[UsageFact]) -> None:
        self.all = [_run(fact) for fact in facts if fact.gpus]  # a pod without devices has none that work
        self._by_uid: dict[str, list[Run]] = {}
        self._by_name: dict[str, list[Run]] = {}
        for run in self.all:
            self._by_uid.setdefault(run.uid, []).append(run)
            self._by_name.setdefault(run.name, []).append(run)

    def named(self, labels: Labels) -> RunMatch:
        """Of one pod where the uid is told; else of all that have had its name."""
        uid = first(labels, POD_UIDS)
        for namespace, pod, container in SPELLINGS:
            name = f"{labels.get(namespace, '')}/{labels.get(pod, '')}"
            if name in self._by_name:
                runs = self._by_uid.get(uid, ()) if uid else self._by_name[name]
                return RunMatch(runs, pod, labels.get(container, ""))
        return NO_MATCH


def _run(fact: UsageFact) -> Run:
    uid, _, rest = fact.source_key.partition("/")
    until = fact.ended if fact.ended is not None else fact.seen_until
    started = fact.started or 0
    return Run(
        key=fact.source_key,
        uid=uid,
        container=rest.partition("/")[0],
        name=fact.job_id,
        node=fact.node_list,
        model=fact.gpu_model,
        profile=fact.mig_profile,
        gpus=fact.gpus,
        started=started,
        until=until if until is not None else started,
    )


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
