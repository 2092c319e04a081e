"""Rows of sacct that are pushed as they were printed. Cases 45 to 49 of the API, for closed networks."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.models import Cluster, Quarantined, UsageRecord
from portal.core.tenants import ownership
from tests.api.door import Answer, Door
from tests.builders import at
from tests.contracts.sacct_exports import COLUMNS, row
from tests.stories import prove
from tests.web.house import House

BATCH = "application/cloudevents-batch+json"
HEADER = "|".join(COLUMNS)


@pytest.fixture(autouse=True)
def own(house: House) -> Cluster:
    """A cluster in Los Angeles, on which a slice of an A100 is a quarter by Op's own table."""
    cluster = Cluster.objects.create(
        name="own", kind="push", timezone="America/Los_Angeles", shares={"a100": {"1g.10gb": "1/4"}}
    )
    account = cluster.accounts.create(name="vision")
    ownership.assign(account=account, tenant=house.vision)
    return cluster


def an_event(text: str, time: str = "2026-04-02T12:00:00Z", header: str = HEADER) -> dict[str, Any]:
    return {
        "specversion": "1.0", "id": text.partition("|")[0], "source": "slurm:own", "time": time,
        "type": "org.clustertab.usage.sacct", "data": {"header": header, "row": text},
    }  # fmt: skip


def send(op: Door, *events: dict[str, Any]) -> Answer:
    return op.send("POST", "/usage-events?cluster=own", list(events), **{"Content-Type": BATCH})


def statuses(answer: Answer) -> list[str]:
    return [result["status"] for result in answer.body["results"]]


def test_a_row_is_read_by_the_zone_and_the_shares_of_its_cluster(op: Door) -> None:
    text = row(AllocTRES="cpu=4,gres/gpu:a100_1g.10gb=2,mem=62.50G,node=1")
    assert statuses(send(op, an_event(text + "\n"))) == ["accepted"]
    (record,) = UsageRecord.objects.filter(cluster__name="own")
    assert record.source_key == "slurm:own 4711"
    assert record.started == at("2026-01-05 16:10").timestamp()
    assert record.ended == at("2026-01-05 17:10").timestamp()
    assert (record.gpus, record.gpu_model, record.mig_profile) == (2, "a100", "1g.10gb")
    assert (record.share_num, record.share_den, record.memory_mib) == (1, 4, 64_000)
    prove()


def test_api_047_a_running_job_grows_and_ends_whatever_the_order(op: Door) -> None:
    running = row(State="RUNNING", End="Unknown", ElapsedRaw="1800") + "\n"
    ended = row() + "\n"
    assert statuses(send(op, an_event(running))) == ["accepted"]
    (record,) = UsageRecord.objects.filter(cluster__name="own")
    assert (record.seen_until or 0) - (record.started or 0) == 1800
    assert statuses(send(op, an_event(ended, "2026-04-02T13:00:00Z"))) == ["changed"]
    assert statuses(send(op, an_event(running), an_event(ended, "2026-04-02T13:00:00Z"))) == ["duplicate"] * 2
    record.refresh_from_db()
    assert (record.ended or 0) - (record.started or 0) == 3600
    prove()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (row(JobIDRaw="4711.batch") + "\n", "job-step"),
        (row() + "\n" + row() + "\n", "not-one-row"),
        ("\n", "not-one-row"),
        (row()[:40] + "\n", "truncated"),
        (row(AllocTRES="gres/gpu=some") + "\n", "tres-count"),
        (row(End="2999-01-05T09:10:00", ElapsedRaw="") + "\n", "absurd-date"),
        (
            row(Submit="2010-01-05T08:00:00", Start="2010-01-05T08:00:00", End="2010-01-05T09:00:00") + "\n",
            "too-old",
        ),
    ],
)
def test_api_049_a_row_that_cannot_be_read_is_rejected_and_kept_as_sent(
    op: Door, text: str, code: str
) -> None:
    answer = send(op, an_event(text))
    assert (answer.status, statuses(answer)) == (400, ["rejected"])
    (error,) = answer.body["results"][0]["errors"]
    kept = Quarantined.objects.get(cluster__name="own")
    assert (kept.code, kept.reason) == (code, error["detail"])
    assert error["pointer"] == "/data/row"
    assert kept.source_key == f"slurm:own {text.partition('|')[0]}"


def test_api_049_a_header_without_the_columns_is_rejected(op: Door) -> None:
    answer = send(op, an_event(row() + "\n", header="JobIDRaw|Submit"), an_event(row() + "\n") | {"id": "x"})
    assert statuses(answer) == ["rejected", "accepted"]
    (error,) = answer.body["results"][0]["errors"]
    assert error["pointer"] == "/data/header"
    assert "AllocTRES" in error["detail"]


def test_api_044_an_empty_batch_tries_the_key_and_the_cluster(op: Door, house: House) -> None:
    answer = send(op)
    assert (answer.status, answer.body) == (
        200,
        {"results": [], "warnings": {"unassigned": {}, "unpriced": {}, "waived": {}}},
    )
    other = op.send("POST", f"/usage-events?cluster={house.cluster.name}", [], **{"Content-Type": BATCH})
    assert other.problem == (409, "refused")
    assert not UsageRecord.objects.filter(cluster__name="own").exists()
