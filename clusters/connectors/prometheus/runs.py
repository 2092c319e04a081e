"""Which run a device's labels name: pods by uid, else by namespace and name, under all spellings of exporters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from clusters.connectors.base import UsageFact
from clusters.connectors.prometheus.coverage import HOUR
from clusters.connectors.prometheus.samples import Labels, first

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
        self.all = [_run(fact) for fact in facts]
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
