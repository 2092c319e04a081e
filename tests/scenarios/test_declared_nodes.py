"""Op declares the nodes of a cluster that is read from files: reports tell its idle GPUs and its margin."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

from clusters import capacity, declared_nodes
from clusters.capacity import CapacityError
from clusters.connectors.base import NodeSeen, NodeState
from clusters.declared_nodes import Node
from clusters.models import Cluster, DeclaredNode
from portal.core.audit.models import AuditEntry
from portal.env import ROOT
from portal.ops.cli import RefusedError
from tests.builders import a_cluster, a_job, a_plan, a_tenant, an_operator, at, busy, ingest
from tests.scenarios.real import run
from tests.scenarios.test_worked_example_a import fully_booked
from tests.web.house import signed_in
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db

DAY = ("--from", "2026-03-02", "--to", "2026-03-03")
NODE = """
[[cluster]]
name = "farm"

[[cluster.node]]
name = "n1"
gpu_model = "rtx4090"
gpus = 4
"""


def applied(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "nodes.toml"
    file.write_text(text)
    return [
        f"{change['what']}: {change['field']} {change['before']} -> {change['after']}"
        for change in run("apply", file)["changes"]
    ]


def day_of_two_nodes() -> Cluster:
    """The day of docs/explanation/efficiency.md."""
    cluster = a_cluster()
    a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    nodes = [Node("n1", "a100", 8), Node("n2", "a100", 8, state="down")]
    declared_nodes.declare_nodes(cluster=cluster, nodes=nodes)
    first = a_job(gpus=8, started="2026-03-02 00:00", ended="2026-03-02 06:00")
    second = a_job(gpus=4, submitted="2026-03-02 06:00", started="2026-03-02 09:00", ended="2026-03-02 15:00")
    hours = [busy(first.source_key, f"2026-03-02 0{hour}:00", str(8 * 1800), 8 * 3600) for hour in range(4)]
    ingest(cluster, first, second, *hours, as_of="2026-03-03")
    return cluster


def documented() -> dict[str, str]:
    page = (ROOT / "docs" / "explanation/efficiency.md").read_text()
    table = page.partition("| part | GPU-hours |\n|---|---|\n")[2].partition("\n\n")[0]
    return dict(re.findall(r"\| (\w+) \| (\d+) \|", table))


def test_worked_example_a_leaves_2880_dollars_of_four_gpus_for_thirty_days(tmp_path: Path) -> None:
    a_cluster("farm")
    plan = a_plan(prices=[("gpu-hour", {"gpu_model": ["rtx4090"]}, "2.00", date(2026, 1, 1))])
    a_tenant("render-house", plan=plan, accounts=[(a_cluster("farm"), "render")])
    run("import_usage", "farm", fully_booked(tmp_path / "june.sacct"))
    applied(tmp_path, NODE)
    answer = run(
        "report_cost", "farm", "--from", "2026-06-01", "--to", "2026-07-01", "--operating-cost", "1.00"
    )
    assert answer["margin"] == {
        "currency": "USD", "revenue": "5760", "operating_cost": "2880", "margin": "2880",
    }  # fmt: skip
    assert (answer["capacity"]["gpu_hours"]["idle"], answer["notes"]) == ("0", [])


def test_worked_example_e_tells_down_idle_and_held_apart_and_they_add_up() -> None:
    day_of_two_nodes()
    answer = run("report_cost", "gpu1", *DAY)
    parts = answer["capacity"]["gpu_hours"] | {
        part: answer["gpu_hours"][part] for part in ("effective", "waste", "unknown")
    }
    assert {part: parts[part] for part in documented()} == documented()
    hours = {part: int(text) for part, text in documented().items()}
    allocation = hours["effective"] + hours["waste"] + hours["unknown"]
    assert hours["allocated"] == allocation
    assert hours["total"] == (
        hours["down"] + hours["drained"] + hours["idle_no_demand"] + hours["idle_jobs_waiting"] + allocation
    )


def test_a_slice_waits_and_idles_by_its_part_of_a_gpu() -> None:
    cluster = a_cluster()
    declared_nodes.declare_nodes(cluster=cluster, nodes=[Node("n1", "a100", 1), Node("n2", "l4", 2)])
    part = {"gpu_share": (1, 7), "mig_profile": "1g.5gb"}
    runs = a_job(gpus=3, started="2026-03-02 00:00", ended="2026-03-03 00:00", **part)
    waits = a_job(
        gpus=1, submitted="2026-03-02 00:00", started="2026-03-02 07:00", ended="2026-03-02 14:00", **part
    )
    ingest(cluster, runs, waits, as_of="2026-03-03")
    models = {of["model"]: of["gpu_hours"] for of in run("report_cost", "gpu1", *DAY)["capacity"]["models"]}
    assert models["a100"]["idle_jobs_waiting"] == "4"  # four sevenths for seven hours
    assert (models["l4"]["idle_no_demand"], models["l4"]["idle_jobs_waiting"]) == ("48", "0")


def test_a_job_that_never_began_waited_until_it_was_withdrawn() -> None:
    cluster = a_cluster()
    declared_nodes.declare_nodes(cluster=cluster, nodes=[Node("n1", "a100", 2)])
    gone = a_job(submitted="2026-03-02 01:00", started=None, ended=None, state="PENDING", gpu_model="")
    ingest(cluster, gone, as_of="2026-03-03")
    nodes = run("report_cost", "gpu1", *DAY)["capacity"]["gpu_hours"]
    assert (nodes["idle_jobs_waiting"], nodes["idle_no_demand"]) == ("46", "2")


def test_a_file_replaces_what_is_declared_and_applied_again_changes_nothing(tmp_path: Path) -> None:
    (new, *_) = applied(tmp_path, NODE)
    assert "n1: 4 × rtx4090, up" in new
    assert applied(tmp_path, NODE) == []
    repaired = (
        NODE
        + 'until = 2026-06-10\n[[cluster.node]]\nname = "n1"\ngpu_model = "rtx4090"\ngpus = 4\n'
        + ('state = "down"\nfrom = 2026-06-10\n')
    )
    (change,) = applied(tmp_path, repaired)
    assert change.endswith("n1: 4 × rtx4090, up, until 2026-06-10; n1: 4 × rtx4090, down, from 2026-06-10")
    assert applied(tmp_path, '[[cluster]]\nname = "farm"\n') == []
    assert applied(tmp_path, '[[cluster]]\nname = "farm"\nnode = []\n') == [
        "cluster farm: nodes n1: 4 × rtx4090, up, until 2026-06-10; n1: 4 × rtx4090, down, from 2026-06-10 -> "
    ]
    assert not DeclaredNode.objects.exists()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (NODE + 'state = "gone"\n', "state is 'gone'; allowed: up, drained, down."),
        (NODE.replace("gpus = 4", "gpus = 0"), "gpus has to be a whole number from 1"),
        (NODE.replace("gpus = 4", ""), "gpus is missing; write how many GPUs the node has."),
        (NODE + "from = 2026-06-02\nuntil = 2026-06-02\n", "ends on 2026-06-02, before or as it begins"),
        (
            NODE + '[[cluster.node]]\nname = "n1"\ngpu_model = "rtx4090"\ngpus = 8\n',
            "n1 is declared twice for one day",
        ),
    ],
)
def test_what_cannot_be_declared_is_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(RefusedError, match=re.escape(sentence)):
        applied(tmp_path, text)
    assert not DeclaredNode.objects.exists()


def test_what_a_sync_observes_counts_from_its_first_look_on() -> None:
    cluster = a_cluster(complete_through="2026-03-03")
    declared_nodes.declare_nodes(cluster=cluster, nodes=[Node("n1", "a100", 8)])
    capacity.observe(
        cluster, [NodeSeen(name="n1", gpu_model="a100", gpus=4, state=NodeState.UP)], at("2026-03-02 12:00")
    )
    assert run("report_cost", "gpu1", *DAY)["capacity"]["gpu_hours"]["total"] == "144"  # 12 × 8 + 12 × 4


def test_days_begin_in_the_zone_of_the_cluster() -> None:
    cluster = a_cluster(timezone="Asia/Tokyo", complete_through="2026-03-03")
    declared_nodes.declare_nodes(cluster=cluster, nodes=[Node("n1", "a100", 1, until=date(2026, 3, 3))])
    assert run("report_cost", "gpu1", *DAY)["capacity"]["gpu_hours"]["total"] == "15"


def test_two_states_at_once_are_refused_before_and_by_the_database() -> None:
    cluster = a_cluster()
    with pytest.raises(CapacityError, match="declared twice for one day"):
        declared_nodes.declare_nodes(
            cluster=cluster, nodes=[Node("n1", "a100", 8), Node("n1", "a100", 8, since=date(2026, 1, 1))]
        )


def test_op_declares_nodes_on_the_page_with_a_preview() -> None:
    cluster = a_cluster("farm")
    op = signed_in(an_operator())
    assert "No nodes are declared, so reports show neither idle GPUs" in words(
        op.get("/operator/clusters/farm/").content.decode()
    )
    path = "/operator/clusters/farm/nodes/"
    sent = {
        "form-TOTAL_FORMS": "2", "form-INITIAL_FORMS": "0", "form-0-name": "n1", "form-0-gpu_model": "rtx4090",
        "form-0-gpus": "4", "form-0-state": "up", "form-0-since": "2026-06-01", "form-1-state": "up",
    }  # fmt: skip
    assert "Declare nodes" in words(op.get(path).content.decode())
    missing = op.post(path, {**sent, "form-0-gpus": "", "act": "preview"}).content.decode()
    assert "Enter the number of GPUs." in words(missing)
    preview = words(op.post(path, {**sent, "act": "preview"}).content.decode())
    assert "Add n1: 4 × rtx4090, up, from 2026-06-01" in preview
    assert not DeclaredNode.objects.exists()
    assert op.post(path, {**sent, "act": "declare"}).headers["Location"] == "/operator/clusters/farm/"
    assert declared_nodes.nodes_of(cluster) == [Node("n1", "rtx4090", 4, since=date(2026, 6, 1))]
    assert "n1: 4 × rtx4090, up, from 2026-06-01" in words(
        op.get("/operator/clusters/farm/").content.decode()
    )
    assert "GPUs now 4 all up, as declared" in words(op.get("/operator/clusters/farm/").content.decode())
    entry = AuditEntry.objects.of_table(DeclaredNode).get()
    assert (entry.operation, entry.who) == ("insert", "op@cluster.example")

    gone = {**sent, "form-INITIAL_FORMS": "1", "form-0-name": ""}
    assert "Remove n1: 4 × rtx4090" in words(op.post(path, {**gone, "act": "preview"}).content.decode())
    twice = {**sent, "form-1-name": "n1", "form-1-gpu_model": "rtx4090", "form-1-gpus": "8"}
    assert "n1 is declared twice for one day" in words(
        op.post(path, {**twice, "act": "preview"}).content.decode()
    )
