"""Recorded pods of real clusters as a Prometheus would have seen them, a scrape every five minutes."""

from __future__ import annotations

import csv
import gzip
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from struct import pack
from typing import Any

from portal.env import ROOT
from tests.integration.prom_lab import generator

DATA = ROOT.parent / "shared" / "data"
STEP = 300  # seconds from scrape to scrape
SPAN = 3000  # seconds of samples that are sent at once: a Prometheus takes none an hour older than its newest
RETENTION = 2 * STEP  # seconds that the object of an ended pod stays


@dataclass(frozen=True)
class Pod:
    """`milli`: thousandths of a GPU that each of `gpus` is. `ended is None`: it outlives the record."""

    namespace: str
    name: str
    gpus: int
    milli: int
    scheduled: int
    ended: int | None
    phase: str

    @property
    def uid(self) -> str:
        return f"uid-{self.name}"


@dataclass(frozen=True)
class Recorded:
    """Pods with GPUs that were scheduled, and the time that the record has, in epoch seconds."""

    name: str
    begin: int
    end: int
    pods: Sequence[Pod]


def recorded(name: str, path: Path, *, begin: str, end: str, clipped: bool) -> Recorded:
    """`clipped`: a pod without a scheduled time was running when the record began; else it never ran."""
    first, last = _second(begin), _second(end)
    pods = []
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if int(row["num_gpu"]) == 0 or not (row["scheduled"] or clipped):
                continue
            pods.append(
                Pod(
                    namespace=row["namespace"],
                    name=row["pod"],
                    gpus=int(row["num_gpu"]),
                    milli=int(row["gpu_milli"]),
                    scheduled=max(_second(row["scheduled"]), first) if row["scheduled"] else first,
                    ended=_second(row["deleted"]) if row["deleted"] else None,
                    phase=row["phase"],
                )
            )
    return Recorded(name, first, last, pods)


def _second(text: str) -> int:
    return int(datetime.fromisoformat(text).astimezone(UTC).timestamp())


@dataclass(frozen=True)
class _Series:
    labels: dict[str, str]
    since: int
    until: int
    value: float


def replay(record: Recorded, url: str, *, completed: bool) -> list[int]:
    """Push it in order of time; the scrapes' epoch seconds. Without `completed`, objects go when their pods end."""
    after = record.end + 1800  # what outlives the record is seen to do so
    scrapes = list(range(record.begin + 17, after, STEP))
    waiting = sorted(_all(record, completed=completed, after=after), key=lambda series: -series.since)
    lab, active = generator(), []
    for begin in range(record.begin, after, SPAN):
        while waiting and waiting[-1].since < begin + SPAN:
            one = waiting.pop()
            active.append((one, _head(lab, one)))
        instants = scrapes[bisect_left(scrapes, begin) : bisect_left(scrapes, begin + SPAN)]
        body = []
        for one, head in active:
            low, high = bisect_left(instants, one.since), bisect_left(instants, one.until)
            if low < high:
                sample = b"\x12\x10\x09" + pack("<d", one.value) + b"\x10"
                samples = b"".join(sample + lab.varint(at * 1000) for at in instants[low:high])
                body.append(lab.field(0x0A, head + samples))
        for part in range(0, len(body), 20_000):
            lab.post(url, b"".join(body[part : part + 20_000]))
        active = [(one, head) for one, head in active if one.until > begin + SPAN]
    return scrapes


def _head(lab: Any, one: _Series) -> bytes:
    return b"".join(
        lab.field(0x0A, lab.field(0x0A, key.encode()) + lab.field(0x12, value.encode()))
        for key, value in sorted(one.labels.items())
    )


def _all(record: Recorded, *, completed: bool, after: int) -> Iterator[_Series]:
    common = {"job": "kube-state-metrics", "instance": "10.0.0.1:8080"}

    def series(metric: str, since: int, until: int, value: float, **labels: str) -> _Series:
        return _Series({"__name__": metric, **common, **labels}, since, until, value)

    yield series("up", record.begin, after, 1)
    yield series("kube_node_info", record.begin, after, 1, node="n-1")
    yield series(
        "kube_node_labels", record.begin, after, 1, node="n-1", label_nvidia_com_gpu_product="NVIDIA-T4"
    )
    for pod in record.pods:
        identity = {"namespace": pod.namespace, "pod": pod.name, "uid": pod.uid}
        ended = after if pod.ended is None else pod.ended
        gone = ended + RETENTION if completed and pod.ended is not None else ended
        if pod.milli == 1000:
            yield series(
                "kube_pod_container_resource_requests", pod.scheduled, gone, pod.gpus, **identity, container="main",
                node="n-1", resource="nvidia_com_gpu", unit="integer",
            )  # fmt: skip
        else:
            fraction = {"annotation_gpu_fraction": f"0.{pod.milli:03d}".rstrip("0")}
            yield series("kube_pod_info", pod.scheduled, gone, 1, **identity, node="n-1")
            yield series("kube_pod_annotations", pod.scheduled, gone, 1, **identity, **fraction)
        yield series("kube_pod_status_phase", pod.scheduled, ended, 1, **identity, phase="Running")
        yield series("kube_pod_status_scheduled_time", pod.scheduled, gone, pod.scheduled, **identity)
        if gone > ended:
            phase = pod.phase if pod.phase in {"Succeeded", "Failed"} else "Succeeded"
            yield series("kube_pod_status_phase", ended, gone, 1, **identity, phase=phase)
            yield series("kube_pod_completion_time", ended, gone, ended, **identity)
