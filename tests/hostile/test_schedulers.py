"""What slurmrestd and Prometheus answer, spoilt: rows, a sentence, and nothing else."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

import pytest

from clusters.connectors.base import BadRow, ConnectorError
from clusters.connectors.prometheus import client
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
    "status": "true",
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


def test_whatever_prometheus_answers_is_rows_or_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "AGAIN", (0,))  # seconds: asked again, and at once
    chance, sentences, spoilt = Mangler(28), list[str](), [0]

    def answer(request: Request) -> PrometheusReply:
        if chance.random() < 1 / 4:
            spoilt[0] += 1
            return PrometheusReply(chance.choice((200, 200, 200, 422)), chance.spoil_json(whole(request)))
        return PrometheusReply(body=json.dumps(whole(request)).encode())

    with StandIn(answer, now=NOW) as prometheus:
        while spoilt[0] < INPUTS:
            source = prometheus_at(prometheus.url)
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
