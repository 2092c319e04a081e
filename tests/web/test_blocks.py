"""Op blocks and unblocks an account on a page: previewed in words, confirmed, and shown with every reason."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from clusters import enforcement_plan
from clusters.job_control import carry_out
from clusters.models import Act, Cluster, ClusterKind, Connection
from portal.core.audit.models import AuditEntry
from tests.builders import a_cluster, an_operator
from tests.fakes import kubernetes, kubernetes_port
from tests.fakes.scheduler_port import a_port, a_world, connected, has_no_patience
from tests.fakes.slurm_world import Association
from tests.fakes.slurmrestd import StandIn
from tests.web.house import signed_in
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db(transaction=True)

PATH = "/operator/clusters/gpu1/blocks/"


@pytest.fixture
def slurm() -> Iterator[StandIn]:
    with StandIn(44, world=a_world()) as slurm:
        connected(slurm)
        yield slurm


@pytest.fixture
def op() -> Client:
    return signed_in(an_operator())


def gpus(slurm: StandIn) -> int:
    return slurm.world.limits("vision").tres["total"]["gres/gpu"]


def shown(op: Client) -> str:
    return words(op.get(PATH).content.decode())


def posts(op: Client, act: str, **fields: str) -> str:
    """The page that follows."""
    response = op.post(PATH, {"act": act, "account": "vision", **fields}, follow=True)
    assert response.status_code == 200
    return response.content.decode()


def plan_of(html: str) -> str:
    match = re.search(r'name="plan" value="([0-9a-f]+)"', html)
    assert match is not None, html
    return match[1]


def dunning_blocks(slurm: StandIn) -> None:
    port = a_port(slurm)
    plan = enforcement_plan.plan_block(port=port, account="vision", source="dunning")
    assert carry_out(port=port, plan=plan, who="dunning", why="INV-1 is not paid").good


def test_an_account_is_blocked_after_a_preview_and_shown_with_why_and_by_whom(
    op: Client, slurm: StandIn
) -> None:
    assert "No blocked accounts." in shown(op)
    html = posts(op, "preview", kind="block", why="noisy", submits="yes")
    assert "Block vision?" in words(html)
    assert "GrpSubmitJobs: none → 0; GrpTRES=gres/gpu: 8 → 0" in words(html)
    assert (gpus(slurm), Act.objects.count()) == (8, 0)
    text = words(posts(op, "confirm", kind="block", why="noisy", submits="yes", plan=plan_of(html)))
    assert gpus(slurm) == 0
    assert "vision Blocked manually noisy New jobs are rejected" in text
    assert "op@cluster.example" in text
    assert Act.objects.get().who == "op@cluster.example"
    assert "Blocked accounts: 1" in words(op.get("/operator/clusters/gpu1/").content.decode())


def test_every_reason_is_shown_and_op_takes_back_the_own_one_alone(op: Client, slurm: StandIn) -> None:
    dunning_blocks(slurm)
    assert "vision Overdue invoice INV-1 is not paid GPU jobs do not start" in shown(op)
    assert 'value="unblock"' not in op.get(PATH).content.decode()
    html = posts(op, "preview", kind="unblock")
    assert "vision is not blocked by operator: it stays blocked for dunning (INV-1 is not paid)." in words(
        html
    )
    posts(op, "confirm", kind="block", plan=plan_of(posts(op, "preview", kind="block")))
    assert "Blocked manually" in shown(op)
    html = posts(op, "preview", kind="unblock")
    assert "Remove the manual block of vision?" in words(html)
    assert "vision stays blocked for dunning (INV-1 is not paid)." in words(html)
    posts(op, "confirm", kind="unblock", plan=plan_of(html))
    assert "Blocked manually" not in shown(op)
    assert gpus(slurm) == 0


def test_what_changed_since_the_preview_is_not_done(op: Client, slurm: StandIn) -> None:
    plan = plan_of(posts(op, "preview", kind="block"))
    slurm.world.limits("vision").tres["total"]["gres/gpu"] = 4
    text = words(posts(op, "confirm", kind="block", plan=plan))
    assert "The changes differ from the preview, so nothing was done. Preview again." in text
    assert (gpus(slurm), slurm.writes()) == (4, [])


def test_what_cannot_be_done_is_a_sentence(
    op: Client, slurm: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_no_patience(monkeypatch)
    text = words(op.post(PATH, {"act": "preview", "kind": "block", "account": "nobody"}).content.decode())
    assert "has no account 'nobody': see `sacctmgr show account`" in text
    fields = {"act": "preview", "kind": "block", "account": "nobody", "why": "too noisy", "submits": "yes"}
    html = op.post(PATH, fields).content.decode()
    assert all(f'value="{text}"' in html for text in ("nobody", "too noisy"))
    assert 'value="yes" checked' in html
    for fields in ({"kind": "cancel", "account": "x"}, {"kind": "block", "account": "\0"}, {}):
        text = words(op.post(PATH, fields).content.decode())
        assert "Enter the account to block or unblock." in text
    slurm.world.deaf = True
    text = words(posts(op, "confirm", kind="block", plan=plan_of(posts(op, "preview", kind="block"))))
    assert "Slurm took the limits of vision and has others" in text
    slurm.down.add("slurmrestd")
    assert op.post(PATH, {"act": "preview", "kind": "block", "account": "vision"}).status_code == 200


def test_a_cluster_that_cannot_be_acted_on_says_so(op: Client) -> None:
    a_cluster("files")
    a_cluster("kube", kind=ClusterKind.PROMETHEUS)
    for name, what in (("files", "slurmrestd"), ("kube", "the cluster's API server")):
        path = f"/operator/clusters/{name}/blocks/"
        html = op.get(path).content.decode()
        assert f"Blocking needs a connection to {what}" in words(html)
        assert (f"/operator/clusters/{name}/connection/?kind=slurm" in html) == (name == "files")
        assert op.post(path, {"act": "preview", "kind": "block", "account": "a"}).status_code == 200
    assert op.get("/operator/clusters/none/blocks/").status_code == 404


def test_quota_031_op_lets_running_jobs_be_ended_after_a_question_and_takes_it_back(
    op: Client, slurm: StandIn
) -> None:
    assert "No running job is ended here" in shown(op)
    assert "Each cancel is written down" in words(op.get(f"{PATH}?ending=change").content.decode())
    assert not Cluster.objects.get().may_end_jobs
    assert "Running jobs may be ended on this cluster." in words(posts(op, "allow-ending"))
    assert "after a grace with two warnings" in shown(op)
    entry = AuditEntry.objects.filter(table="clusters_cluster", operation="update").latest("pk")
    assert "may_end_jobs" in str(entry.after)
    assert entry.who == "op@cluster.example"
    assert "No running job is ended on this cluster." in words(posts(op, "refuse-ending"))


def test_op_has_prices_written_into_jobs_after_a_question_and_sees_what_hinders(
    op: Client, slurm: StandIn
) -> None:
    assert "Nothing is written into jobs." in shown(op)
    assert "users of other tenants, too" in words(op.get(f"{PATH}?prices=change").content.decode())
    assert not Cluster.objects.get().job_prices
    assert "Prices are written into jobs." in words(posts(op, "write-prices"))
    Connection.objects.update(job_prices_error="Slurm lets clustertab write no comments.")
    assert "Slurm lets clustertab write no comments." in shown(op)
    entry = AuditEntry.objects.filter(table="clusters_cluster", operation="update").latest("pk")
    assert ("job_prices" in str(entry.after), entry.who) == (True, "op@cluster.example")
    assert "No price is written into jobs." in words(posts(op, "leave-prices"))
    assert Connection.objects.get().job_prices_error == ""


def test_the_page_asks_as_often_for_many_blocks_as_for_one(op: Client, slurm: StandIn) -> None:
    def query_count() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert op.get(PATH).status_code == 200
        return len(queries)

    dunning_blocks(slurm)
    few = query_count()
    port = a_port(slurm)
    for n in range(12):
        slurm.world.associations.append(Association(100 + n, f"a{n}", parent="acme"))
        for source in ("operator", "quota"):
            plan = enforcement_plan.plan_block(port=port, account=f"a{n}", source=source)
            assert carry_out(port=port, plan=plan, who="op").good
    assert query_count() == few


def test_quota_053_a_kubernetes_account_is_blocked_on_the_page_which_says_what_comes_of_it(
    op: Client,
) -> None:
    with kubernetes.StandIn() as kube:
        kubernetes_port.a_world(kube)
        kubernetes_port.connected(kube)
        path = "/operator/clusters/kube/blocks/"
        page = words(op.get(path).content.decode())
        assert "a Deployment or Job whose pod ends cannot bring it back before the block is lifted" in page
        assert "budgets count what was used" in page
        assert "Slurm" not in page
        form = {"kind": "block", "account": "batch", "why": "unpaid"}
        preview = op.post(path, {**form, "act": "preview"}).content.decode()
        assert "requests.nvidia.com/gpu of ResourceQuota batch/clustertab-block: none → 0" in words(preview)
        assert kube.writes() == []
        op.post(path, {**form, "act": "confirm", "plan": plan_of(preview)})
        assert (
            kube.spec("resourcequotas", "batch", "clustertab-block")["hard"]["requests.nvidia.com/gpu"] == "0"
        )
        cluster_page = words(op.get("/operator/clusters/kube/").content.decode())
        assert "Blocked accounts: 1" in cluster_page
        assert kubernetes.TOKEN not in cluster_page
