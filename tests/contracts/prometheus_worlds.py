"""Small clusters of one oddity each, pushed into the real Prometheus behind its history, each under its own name."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from tests.integration.prom_lab import Lab, generator

HOUR = 3600
LATER = 10 * 24 * HOUR  # behind what the server has: it takes nothing older


class World:
    """One cluster for two hours. Times are seconds since its beginning; `None` is its end."""

    LENGTH = 2 * HOUR

    def __init__(
        self, worlds: Worlds, name: str, down: Sequence[tuple[int, int]], up: bool, **labels: str
    ) -> None:
        self.name = name
        self.begin = worlds.begin
        self.end = worlds.begin + self.LENGTH
        self._out = worlds.out
        target = {"job": f"ksm-{name}", "cluster": name, **labels}
        outages = [(self.begin + since, self.begin + until) for since, until in down]
        self._target = worlds.lab.Target(
            random.Random(name), self.begin, self.end, {**target, "instance": f"{name}:8080"}, outages
        )
        self._exporter = worlds.lab.Target(
            random.Random(f"dcgm {name}"), self.begin, self.end, {"cluster": name, "job": "dcgm"}
        )
        if up:
            self.series("up", {}, [(0, None, 1)])
        self.series("kube_node_info", {"node": "n-1"}, [(0, None, 1)])

    def series(
        self, metric: str, labels: dict[str, str], parts: Sequence[tuple[int, int | None, Any]]
    ) -> None:
        self._out.add(self._target, metric, labels, self._segments(parts))

    def dcgm(
        self,
        parts: Sequence[tuple[int, int | None, Any]],
        *,
        holder: str = "",
        metric: str = "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        gpu: int = 0,
        **labels: str,
    ) -> None:
        """What an exporter tells of a device of n-1 that the pod `holder` has, where the target's own labels win."""
        uuid = {} if "uuid" in labels else {"UUID": f"GPU-{self.name}-{gpu}"}
        named = (
            {"exported_namespace": "team", "exported_pod": holder, "exported_container": "main"}
            if holder
            else {}
        )
        device_labels = {
            "gpu": str(gpu), "Hostname": "n-1", "namespace": "gpu-operator", "pod": "dcgm-exporter-x",
            "container": "dcgm-exporter", **uuid, **named, **labels,
        }  # fmt: skip
        self._out.add(self._exporter, metric, device_labels, self._segments(parts))

    def _segments(self, parts: Sequence[tuple[int, int | None, Any]]) -> list[tuple[int, int, Any]]:
        return [
            (self.begin + since, self.end if until is None else self.begin + until, value)
            for since, until, value in parts
        ]

    def node(
        self, name: str, *, product: str, since: int = 0, until: int | None = None, memory: str = ""
    ) -> None:
        node_labels = {"label_nvidia_com_gpu_product": product, "label_nvidia_com_gpu_memory": memory}
        self.series("kube_node_labels", {"node": name, **node_labels}, [(since, until, 1)])
        for metric in ("kube_node_status_capacity", "kube_node_status_allocatable"):
            node_labels = {"node": name, "resource": "nvidia_com_gpu", "unit": "integer"}
            self.series(metric, node_labels, [(since, until, 8)])

    def pod(
        self,
        name: str,
        *,
        since: int = 0,
        until: int | None = None,
        containers: Sequence[str] = ("main",),
        resource: str = "nvidia_com_gpu",
        phases: Sequence[tuple[int, int | None, str]] | None = None,
        completed: int | None = None,
        scheduled: int | None = None,
        started: int | None = None,
        exported: bool = False,
        node: str = "n-1",
        uid: str = "",
        created: int | None = None,
        priority_class: str = "",
        owner: tuple[str, str] = ("", ""),
        pod_labels: dict[str, str] | None = None,
        qos_class: str = "",
    ) -> None:
        """A pod whose series stand in [since, until), scheduled when they begin unless said otherwise.

        `scheduled=-1`: that metric is not kept. `phases`: Running all along unless told; `[]`: not kept.
        """
        prefix = "exported_" if exported else ""
        identity = {f"{prefix}namespace": "team", f"{prefix}pod": name, "uid": self.uid(uid or name)}
        for container in containers:
            labels = {f"{prefix}container": container, "node": node, "resource": resource, "unit": "integer"}
            self.series("kube_pod_container_resource_requests", {**identity, **labels}, [(since, until, 1)])
        classed = {"priority_class": priority_class} if priority_class else {}
        self.series("kube_pod_info", {**identity, "node": node, **classed}, [(since, until, 1)])
        if any(owner):
            kind, owner_name = owner
            owned = {"owner_kind": kind, "owner_name": owner_name, "owner_is_controller": "true"}
            self.series("kube_pod_owner", {**identity, **owned}, [(since, until, 1)])
        if pod_labels:
            self.series("kube_pod_labels", {**identity, **pod_labels}, [(since, until, 1)])
        for qos in ("BestEffort", "Burstable", "Guaranteed") if qos_class else ():
            named = {**identity, "qos_class": qos}
            self.series("kube_pod_status_qos_class", named, [(since, until, float(qos == qos_class))])
        for begin, end, phase in [(since, until, "Running")] if phases is None else phases:
            for one in ("Pending", "Running", "Succeeded", "Failed", "Unknown"):
                self.series(
                    "kube_pod_status_phase", {**identity, "phase": one}, [(begin, end, float(one == phase))]
                )
        for metric, moment in (
            ("kube_pod_status_scheduled_time", since if scheduled is None else scheduled),
            ("kube_pod_start_time", started),
            ("kube_pod_completion_time", completed),
            ("kube_pod_created", created),
        ):
            if moment is not None and moment >= 0:
                self.series(metric, identity, [(max(moment, since), until, self.begin + moment)])

    def uid(self, pod: str) -> str:
        """The same in all worlds whose names begin alike."""
        return f"{self.name.partition('@')[0]}-{pod}"


class Worlds:
    """`worlds.new("name")` begins one; `push()` sends all of them, once."""

    def __init__(self, prometheus: Lab) -> None:
        self.lab = generator()
        self.url = prometheus.url
        self.begin = prometheus.newest + LATER
        prometheus.newest = self.begin + World.LENGTH
        self.out = self.lab.Out()
        self.all: dict[str, World] = {}

    def new(
        self, name: str, *, down: Sequence[tuple[int, int]] = (), up: bool = True, **labels: str
    ) -> World:
        self.all[name] = World(self, name, down, up, **labels)
        return self.all[name]

    def push(self) -> None:
        self.lab.push(self.url, self.out.runs())


Story = Callable[[Worlds], None]


class Stories:
    """What the clusters of a module live through: each story is added by decorating it."""

    def __init__(self) -> None:
        self._stories: list[Story] = []

    def __call__(self, tells: Story) -> Story:
        self._stories.append(tells)
        return tells

    def pushed(self, lab: Lab) -> Worlds:
        """All of them at once, since a Prometheus takes no samples older than those it has."""
        worlds = Worlds(lab)
        for tells in self._stories:
            tells(worlds)
        worlds.push()
        return worlds
