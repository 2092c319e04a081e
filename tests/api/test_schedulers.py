"""Op's scripts set up clusters, have them pulled and act on their schedulers. Cases 28, 33 and 41 of the API."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from clusters.models import Act, Cluster, Connection
from portal.core.outbox.models import OutboxMessage
from tests import builders
from tests.api.door import Door, door
from tests.fakes.scheduler_port import a_world, connected
from tests.fakes.slurm_world import Job
from tests.fakes.slurmrestd import StandIn

pytestmark = pytest.mark.django_db


@pytest.fixture
def slurm() -> Iterator[StandIn]:
    """gpu1 is connected; Ben has one job that waits in vision and one that runs."""
    with StandIn(44, world=a_world()) as slurm:
        slurm.world.add(Job(11), Job(12, state="RUNNING", reason="None", started=1_772_000_100))
        connected(slurm)
        yield slurm


@pytest.fixture
def op() -> Door:
    return door(builders.an_operator(), None)


def test_api_041_an_act_is_previewed_with_its_plan_and_then_done_once(
    slurm: StandIn, op: Door, capsys: pytest.CaptureFixture[str]
) -> None:
    hold = {"kind": "hold", "account": "vision", "why": "budget used up"}
    previewed = op.writes("/clusters/gpu1/acts?dry_run=true", hold)
    call_command("hold_jobs", "gpu1", "vision", "--json")
    assert previewed == json.loads(capsys.readouterr().out)
    assert slurm.writes() == []
    assert op.post("/clusters/gpu1/acts", hold, key="a").problem == (400, "invalid-request")
    done = op.writes("/clusters/gpu1/acts", hold | {"plan": previewed["plan"]}, key="b")
    assert ([step["outcome"] for step in done["steps"]], done["carried_out"]) == (["done"], True)
    again = op.post("/clusters/gpu1/acts", hold | {"plan": previewed["plan"]}, key="b")
    assert (again.body, again.headers["Idempotent-Replayed"]) == (done, "true")
    act = Act.objects.get()
    assert act.why == "budget used up"
    assert act.who.startswith("op@cluster.example (API key ")
    assert slurm.world.jobs[11].reason == "JobHeldAdmin"


def test_api_041_another_plan_than_the_one_that_was_looked_at_is_not_carried_out(
    slurm: StandIn, op: Door
) -> None:
    hold = {"kind": "hold", "account": "vision"}
    plan = op.writes("/clusters/gpu1/acts?dry_run=true", hold)["plan"]
    slurm.world.add(Job(13))
    refused = op.post("/clusters/gpu1/acts", hold | {"plan": plan}, key="a")
    assert refused.problem == (409, "conflict")
    with pytest.raises(CommandError) as by_command:
        call_command("hold_jobs", "gpu1", "vision", "--yes", "--plan", plan)
    assert str(by_command.value).partition(":")[0] == refused.body["detail"].partition(":")[0]
    assert not Act.objects.exists()


@pytest.mark.parametrize(
    ("command", "body"),
    [
        (("hold_jobs", "gpu1", " "), {"kind": "hold"}),
        (("block_account", "gpu1", "nobody"), {"kind": "block", "account": "nobody"}),
        (("cancel_job", "gpu1", "99"), {"kind": "cancel", "job": 99}),
    ],
)
def test_api_042_an_act_that_the_command_refuses_is_refused_with_the_same_sentence(
    slurm: StandIn, op: Door, command: tuple[str, ...], body: dict[str, object]
) -> None:
    with pytest.raises(CommandError) as by_command:
        call_command(*command)
    refused = op.post("/clusters/gpu1/acts?dry_run=true", body)
    assert refused.problem == (409, "refused")
    assert refused.body["detail"] == str(by_command.value)


def test_api_041_a_scheduler_that_does_not_answer_is_no_fault_of_ours(op: Door) -> None:
    builders.a_cluster("files")
    refused = op.post("/clusters/files/acts?dry_run=true", {"kind": "hold", "account": "vision"})
    assert refused.problem == (409, "refused")


def test_api_031_a_cluster_is_put_the_same_again_and_patched(op: Door) -> None:
    for _ in range(2):
        answer = op.send("PUT", "/clusters/lab", {"timezone": "Europe/Berlin"})
        assert (answer.status, answer.body["kind"], answer.body["connection"]) == (200, "import", None)
    assert Cluster.objects.filter(name="lab").count() == 1
    shares = {"a100": {"1g.10gb": "1/4", "shard": "1/4", "shard@gpu[05-08]": "1/8"}}
    assert op.send("PATCH", "/clusters/lab", {"shares": shares}).body["shares"] == shares
    unread = op.send("PATCH", "/clusters/lab", {"shares": {"a100": {"shards": "1/4"}}})
    assert unread.problem == (400, "invalid-request")
    assert op.send("PATCH", "/clusters/lab", {"shares": None}).body["shares"] == {}
    assert op.reads("/clusters/lab")["timezone"] == "Europe/Berlin"
    stale = op.send("PUT", "/clusters/lab", {}, **{"If-Match": '"old"'})
    assert stale.problem == (412, "changed-meanwhile")
    assert op.send("PUT", "/clusters/lab", {"timezone": "Mars/Base"}).problem == (400, "invalid-request")
    assert op.send("PUT", "/clusters/lab", {"connection": {}}).problem == (400, "invalid-request")


def test_api_041_a_cluster_is_pulled_when_op_asks(slurm: StandIn, op: Door) -> None:
    Connection.objects.update(next_pull_at=builders.at("2199-01-01"))
    answer = op.writes("/clusters/gpu1/pulls", status=202)
    assert answer["connection"]["next_pull_at"] is None
    assert OutboxMessage.objects.filter(task="billing.tasks.pull_due").count() == 1
    builders.a_cluster("files")
    assert op.post("/clusters/files/pulls").problem == (409, "refused")


def test_api_041_a_connection_is_put_and_its_secrets_are_never_given_back(op: Door) -> None:
    secret, path = "do-not-show-7f3a", "/clusters/gpu9/connection"
    op.send("PUT", "/clusters/gpu9", {"kind": "slurm"})
    body = {"url": "https://slurm.example:6820", "user": "portal", "token": secret, "every": 60}
    answer = op.send("PUT", path, body)
    assert (answer.status, answer.body["secrets"], answer.body["every"]) == (200, ["token"], 60), answer.raw
    row = Connection.objects.get(cluster__name="gpu9")
    assert row.token.reveal() == secret
    kept = op.send("PUT", path, {"url": "https://slurm.example:6820", "user": "portal"})
    assert (kept.body["secrets"], kept.body["every"]) == (["token"], 300)
    for read in (answer, kept, op.get(path), op.get("/clusters/gpu9"), op.get("/history")):
        assert secret.encode() not in read.raw
    moved = op.send("PUT", path, {"url": "https://elsewhere.example:6820", "user": "portal"})
    assert moved.problem == (400, "invalid-request")
    assert op.send("PUT", path, {"url": "https://slurm.example:6820", "token": None}).body["secrets"] == []


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/url"),
        ({"url": "ftp://slurm"}, "/url"),
        ({"url": "https://slurm.example", "aws": {"region": "x"}}, "/aws"),
        ({"url": "https://slurm.example", "ca": "file:/etc/passwd"}, "/ca"),
        ({"url": "https://slurm.example", "token": "file:/etc/passwd"}, "/token"),
        ({"url": "https://slurm.example", "jwt_key": "?"}, "/jwt_key"),
    ],
)
def test_api_041_a_connection_that_cannot_be_meant_so_is_refused(
    op: Door, body: dict[str, object], pointer: str
) -> None:
    op.send("PUT", "/clusters/gpu9", {"kind": "slurm"})
    refused = op.send("PUT", "/clusters/gpu9/connection", body)
    assert refused.problem == (400, "invalid-request")
    assert refused.body["errors"][0]["pointer"] == pointer
    assert not Connection.objects.exists()


def test_api_018_the_history_is_read_by_its_own_scope(op: Door) -> None:
    op.send("PUT", "/tenants/chem", {"name": "Chemistry", "tax_rate": "19.5"})
    (row,) = op.reads("/history?tenant=chem")["data"]
    assert (row["operation"], row["after"]["name"]) == ("insert", "Chemistry")
    assert row["through"] == "API PUT /api/v1/tenants/chem"
    assert op.get("/history?row=1").problem == (400, "invalid-request")
    reader = door(builders.an_operator("second@cluster.example"), None, "ops:read")
    assert reader.get("/history").problem == (403, "missing-scope")
