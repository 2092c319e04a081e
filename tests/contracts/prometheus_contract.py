"""A small cluster in a real Prometheus, for the contract that all live connectors keep."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from clusters.connectors.base import Connector
from clusters.connectors.http import Endpoint, Http
from tests.contracts.live_contract import Case
from tests.contracts.prometheus_reading import connector, through
from tests.contracts.prometheus_worlds import World, Worlds
from tests.fakes.prometheus import Reply, Request, StandIn, error
from tests.integration.prom_lab import Lab, running

ENDS = 6000  # seconds after the world's beginning, in which the run that runs ends


class PrometheusSource:
    """Two worlds of the same pods, of which one runs on in the first and has ended in the second."""

    url = ""  # of the server that gives the answers of `answer`

    def __init__(self, begin: int, real: Http) -> None:
        self.since, self.now = begin, begin + World.LENGTH
        self.running = "contract-runs/main/nvidia_com_gpu"
        self.missing_key = "contract-never/main/nvidia_com_gpu"
        self.bad = 1
        self._matcher = 'cluster="contract@runs"'
        self._real = real
        self._shuffled = self._failing = False

    def connector(self) -> Connector:
        return connector(self.url, matcher=self._matcher)

    def shuffle(self) -> None:
        self._shuffled = True

    def end(self) -> None:
        self._matcher = 'cluster="contract@ended"'

    def fail(self) -> None:
        self._failing = True

    def heal(self) -> None:
        self._failing = False

    def answer(self, request: Request) -> Reply:
        """The real server's, as the test has it happen."""
        if self._failing and "kube_pod_completion_time" in request.query:
            return error(503, "unavailable", "the store gateway is restarting")
        response = through(self._real, request)
        body = response.body
        if self._shuffled and response.status == 200:
            answer = json.loads(body)
            answer["data"]["result"].reverse()
            body = json.dumps(answer).encode()
        return Reply(response.status, body)


@cache
def _begin(lab: Lab) -> int:
    """Both worlds, pushed once into each lab; the epoch second of their beginning."""
    worlds = Worlds(lab)
    for name, ends in (("contract@runs", None), ("contract@ended", ENDS)):
        world = worlds.new(name)
        world.node("n-1", product="NVIDIA-H100-80GB-HBM3")
        world.pod(
            "ended", since=300, phases=[(300, 2000, "Running"), (2000, None, "Succeeded")], completed=2000
        )
        world.pod("deleted", since=300, until=2500)
        world.pod("odd", since=300, resource="nvidia_com_gpu_shared")
        over = [] if ends is None else [(ends, None, "Succeeded")]
        world.pod("runs", since=600, phases=[(600, ends, "Running"), *over], completed=ends)
    worlds.push()
    return worlds.begin


@contextmanager
def _source() -> Iterator[PrometheusSource]:
    with running("push") as lab, Http(Endpoint(base_url=lab.url)) as real:
        source = PrometheusSource(_begin(lab), real)
        with StandIn(source.answer, now=source.now) as prometheus:
            source.url = prometheus.url
            yield source


CASE = Case("prometheus", _source)
