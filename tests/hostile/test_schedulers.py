"""What slurmrestd and Prometheus answer, spoilt: rows, a sentence, and nothing else."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from clusters.connectors.base import BadRow, ConnectorError
from clusters.connectors.http import Endpoint
from clusters.connectors.prometheus import PrometheusConnector, PrometheusLogin, client, gpu_errors
from clusters.connectors.prometheus.option_parsing import options_from
from clusters.connectors.sums import MeterUnit
from tests.contracts.prometheus_reading import ADMITTED
from tests.contracts.prometheus_reading import connector as prometheus_at
from tests.contracts.slurm_recorded import Reply, Slurm, a_job, live_jobs, serving
from tests.contracts.slurm_recorded import connector as slurm_at
from tests.fakes.prometheus import Reply as PrometheusReply
from tests.fakes.prometheus import Request, StandIn
from tests.hostile.mangling import INPUTS, REPEATED, Mangler

pytestmark = pytest.mark.larger

NOW = 1_740_700_000
BEGIN = NOW - 7200
JOBS = [
    a_job(1, submit=BEGIN, start=BEGIN + 60, end=BEGIN + 3600),
    a_job(2, submit=BEGIN + 30, start=BEGIN + 90),
    a_job(3, submit=BEGIN + 40),
]


@dataclass
class SpoiltSlurm(Slurm):
    """One answer in three is spoilt."""

    chance: Mangler = field(default_factory=lambda: Mangler(19))
    spoilt: int = 0

    def answer(self, path: str, query: dict[str, str]) -> Reply:
        reply = super().answer(path, query)
        if self.chance.random() < 1 / 3:
            self.spoilt += 1
            reply.status = self.chance.choice((200, 200, 200, 200, 500))
            reply.body = self.chance.spoil_json(json.loads(reply.body or b"null"))
        return reply


def test_whatever_slurmrestd_answers_is_rows_or_a_sentence() -> None:
    slurm = SpoiltSlurm(jobs=JOBS, live=live_jobs((2, BEGIN + 30, "RUNNING"), (3, BEGIN + 40, "PENDING")))
    sentences: list[str] = []
    with serving(slurm) as address:
        while slurm.spoilt < INPUTS:
            source = slurm_at(address, now=NOW)
            try:
                rows = list(source.usage(since=BEGIN, until=NOW, open_keys=("2@1740692830", "9@1740692830")))
            except ConnectorError as error:
                assert source.reading.complete_through is None
                sentences.append(str(error))
            else:
                sentences += [row.reason for row in rows if isinstance(row, BadRow)]
            sentences += source.reading.notes
    assert len(sentences) > INPUTS // 20
    assert not [sentence for sentence in sentences if REPEATED in sentence]


LABELS = {
    "uid": "uid-1", "namespace": "vision", "pod": "train-0", "node": "n-1", "container": "main",
    "job": "kube-state-metrics",
    "resource": "nvidia_com_gpu", "phase": "Succeeded", "instance": "10.0.0.1:8080", "priority_class": "low",
    "annotation_gpu_fraction": "0.5", "label_nvidia_com_gpu_product": "NVIDIA-A100-SXM4-80GB", "UUID": "GPU-1",
    "gpu": "0",
    "Hostname": "n-1", "exported_pod": "train-0", "exported_namespace": "vision", "condition": "Ready",
    "status": "true", "persistentvolumeclaim": "data", "storageclass": "fast", "model_name": "large", "claim_name": "c",
    "resourceclaim_name": "c-1", "restart_policy": "Always", "id": "/kubepods/uid-1", "name": "k8s_main",
    "owner_kind": "ReplicaSet", "owner_name": "train", "owner_is_controller": "true", "reason": "Evicted",
}  # fmt: skip


def whole(request: Request) -> Any:
    """An answer that fits every question: two pods with every label there is."""
    at = int(request.form.get("time", request.form.get("end", ["0"]))[0])
    series = [{"metric": {**LABELS, "uid": uid}} for uid in ("uid-1", "uid-2")]
    if request.what == "query_range" or (re.search(r"\][)\s]*$", request.query) and "(" not in request.query):
        for one in series:
            one["values"] = [[at - 60 * n, "1"] for n in range(5, 0, -1)]  # type: ignore[assignment]
        return {"status": "success", "data": {"resultType": "matrix", "result": series}}
    value = str(at - 3000) if "time" in request.query else "2"
    for one in series:
        one["value"] = [at, value]  # type: ignore[assignment]
    return {"status": "success", "data": {"resultType": "vector", "result": series}}


METERS = {
    "llm-tokens": MeterUnit("llm-tokens", 0, 1_000_000, ("model", "direction")),
    **{name: MeterUnit(name, 6, 10**6, ()) for name in ("cpu-beyond", "memory-beyond", "volumes")},
}
ALL = {
    "tokens": {"server": "vllm", "since": "2025-02-27T00:00Z"},
    "use": {"cpu": "cpu-beyond", "memory": "memory-beyond"},
    "volumes": "volumes",
    "cpu_memory": "all",
    "hami": "larger",
}


@dataclass
class Spoiler:
    """One answer in four is spoilt."""

    chance: Mangler = field(default_factory=lambda: Mangler(28))
    spoilt: int = 0

    def answer(self, request: Request) -> PrometheusReply:
        if self.chance.random() < 1 / 4:
            self.spoilt += 1
            body = self.chance.spoil_json(whole(request))
            return PrometheusReply(self.chance.choice((200, 200, 200, 422)), body)
        return PrometheusReply(body=json.dumps(whole(request)).encode())


@pytest.mark.parametrize("table", [{}, ALL], ids=["runs", "all that can be read"])
def test_whatever_prometheus_answers_is_rows_or_a_sentence(
    table: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "AGAIN", (0,))  # seconds: asked again, and at once
    spoiler, sentences = Spoiler(), list[str]()
    options = replace(options_from(table), energy=bool(table))
    with StandIn(spoiler.answer, now=NOW) as prometheus:
        while spoiler.spoilt < INPUTS:
            source = PrometheusConnector(
                Endpoint(base_url=prometheus.url),
                login=PrometheusLogin(),
                options=options,
                clock=lambda: ADMITTED,
                meters=METERS,
            )
            try:
                rows = list(source.usage(since=BEGIN, until=NOW, open_keys=("uid-1/main/nvidia_com_gpu",)))
            except ConnectorError as error:
                assert source.reading.complete_through is None
                sentences.append(str(error))
            else:
                sentences += [row.reason for row in rows if isinstance(row, BadRow)]
            finally:
                source.close()
            sentences += source.reading.notes
    assert len(sentences) > INPUTS // 20
    assert not [sentence for sentence in sentences if REPEATED in sentence]


def test_whatever_prometheus_answers_of_failed_gpus_is_errors_or_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "AGAIN", (0,))
    spoiler, read, refused = Spoiler(), 0, 0
    with StandIn(spoiler.answer, now=NOW) as prometheus:
        while spoiler.spoilt < INPUTS:
            source = gpu_errors.connect(
                Endpoint(base_url=prometheus.url),
                login=PrometheusLogin(),
                options=options_from({}),
                clock=lambda: NOW,
            )
            try:
                read += len(list(source.read(since=BEGIN, until=NOW)))
            except ConnectorError:
                refused += 1
            finally:
                source.close()
    assert refused


@pytest.fixture(autouse=True)
def _without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "AGAIN", (0, 0, 0))


@pytest.mark.parametrize(
    "body",
    [
        b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{"uid":"\xff"},"value":[1,"1"]}]}}',
        b'{"status":"success","data":{"resultType":"vector","result":'
        + b"[" * 100_000
        + b"]" * 100_000
        + b"}}",
        b'{"status":"success","data":{"resultType":"scalar","result":[1e999999999,"1"]}}',
        b'{"status":"success","data":{"resultType":"scalar","result":[1,"1e999999999"]}}',
    ],
)
def test_an_answer_that_cannot_be_read_is_one_sentence(body: bytes) -> None:
    with StandIn(lambda _: PrometheusReply(body=body), now=NOW) as prometheus:
        source = prometheus_at(prometheus.url)
        with pytest.raises(ConnectorError, match="is not what the query API documents"):
            list(source.usage(since=BEGIN, until=NOW, open_keys=()))
        source.close()


def test_a_pod_that_nobody_asked_for_is_passed_over() -> None:
    """Places of a pod that has no annotation, as a server tells whose samples moved between two questions."""

    def answer(request: Request) -> PrometheusReply:
        payload = whole(request)
        if "annotation" in request.query:
            payload["data"]["result"] = [
                series for series in payload["data"]["result"] if series["metric"]["uid"] == "uid-1"
            ]
        return PrometheusReply(body=json.dumps(payload).encode())

    with StandIn(answer, now=NOW) as prometheus:
        source = prometheus_at(prometheus.url)
        list(source.usage(since=BEGIN, until=NOW, open_keys=()))
        source.close()
