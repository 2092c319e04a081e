"""A training is one job to people, however many pods it has: in lists, on its page and in the API."""

from __future__ import annotations

import json
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.models import BillingPeriod, RatedJob
from billing.queries import job_lists, job_parts, jobs
from billing.queries.job_lists import Order
from billing.queries.jobs import NEWEST_FIRST, Job, JobFilter, matching
from clusters.connectors.base import UsageFact
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import tenant_scope
from portal.web.job_columns import cells, headings
from tests.builders import LONG_AGO, a_cluster, a_job, a_plan, a_tenant, at, ingest
from tests.owner import as_owner
from tests.scenarios.test_wallet_pages import nodes

pytestmark = pytest.mark.django_db

BEGIN, UTC = "2026-03-02", ZoneInfo("UTC")


def a_pod(number: int, pod: str, job: str, start: str, end: str, **more: object) -> UsageFact:
    fields: dict[str, object] = {
        "source_key": f"uid-{number}/main/nvidia_com_gpu",
        "account": "team",
        "job_id": f"team/{pod}",
        "name": job,
        "gpus": 2,
        "gpu_model": "h100",
        "started": f"{BEGIN} {start}",
        "ended": f"{BEGIN} {end}",
    }
    return a_job(**fields | more)


def a_story() -> Tenant:
    """A training of three pods, a service of one, two jobs of Slurm's kind, and others of the same name elsewhere."""
    kube, slurm = a_cluster("kube"), a_cluster("gpu1")
    plan = a_plan()
    tenant = a_tenant("vision", plan=plan, accounts=[(kube, "team"), (kube, "second"), (slurm, "lab")])
    a_tenant("others", plan=plan, accounts=[(kube, "foreign")])
    ingest(
        kube,
        a_pod(1, "train-0", "train", "08:00", "10:00", state="Succeeded"),  # 2 × 2 h at 2.00: 8.00
        a_pod(2, "train-1", "train", "08:00", "11:00", state="Succeeded"),  # 12.00
        a_pod(3, "train-1", "train", "11:00", "11:30", state="Failed"),  # 2.00, of the same name, another pod
        a_pod(4, "serve-x", "serve", "09:00", "12:00", state="Unknown"),  # 12.00
        a_pod(5, "train-0", "train", "09:00", "10:00", job_id="second/train-0", account="second"),  # 4.00
        a_pod(6, "train-0", "train", "09:00", "10:00", account="foreign"),  # another tenant's
        a_pod(7, "alone", "alone", "07:00", "08:00"),  # 4.00, by nobody
    )
    ingest(slurm, a_job(source_key="8@1", account="lab", job_id="8", name="train", gpus=1, gpu_model="h100",
                        started=f"{BEGIN} 10:00", ended=f"{BEGIN} 20:00"))  # 20.00  # fmt: skip
    return tenant


def shown(jobs: list[Job]) -> list[tuple[str, int, str]]:
    return [
        (job.number, job.parts.count if job.parts else 0, str(job.cost.amount if job.cost else None))
        for job in jobs
    ]


TRAIN, SLURM, SERVE = ("team/train", 3, "22"), ("8", 0, "20"), ("team/serve-x", 0, "12")
SECOND, ALONE = ("second/train-0", 0, "4"), ("team/alone", 0, "4")


def test_pods_of_one_job_are_one_row_with_what_they_cost_together() -> None:
    tenant = a_story()
    period = BillingPeriod.objects.get(tenant=tenant)
    with tenant_scope(tenant):
        rows, more = job_lists.listed(tenant, JobFilter(), Order.NEWEST)
        assert (sorted(shown(rows)), more) == (sorted([TRAIN, SLURM, SERVE, SECOND, ALONE]), "")
        assert shown(rows)[0] == TRAIN  # its newest pod is the newest of all
        [train] = [job for job in rows if job.parts]
        assert (train.duration, train.gpu_seconds, train.state) == (
            3 * 3600 + 1800, Fraction(2 * (2 + 3) * 3600 + 2 * 1800), "Failed",
        )  # fmt: skip

        by_cost, _ = job_lists.listed(tenant, JobFilter(period=period), Order.COST)
        top = job_parts.top_jobs(tenant, period, limit=3)
        totals = job_lists.totals(tenant, JobFilter(period=period))
    assert shown(by_cost)[:3] == shown(top) == [TRAIN, SLURM, SERVE]
    assert totals is not None
    assert (totals.jobs, [str(sum_.amount) for sum_ in totals.cost]) == (5, ["62"])


def test_a_filter_and_a_range_look_at_parts_and_the_parts_of_one_job_are_a_list_of_their_own() -> None:
    tenant = a_story()
    with tenant_scope(tenant):
        ended_well, _ = job_lists.listed(tenant, JobFilter(state="Succeeded"), Order.NEWEST)
        early = JobFilter(ran=(second("07:00"), second("08:30")))
        began_early, _ = job_lists.listed(tenant, early, Order.NEWEST)
        later, _ = job_lists.listed(tenant, JobFilter(ran=(second("10:30"), second("11:15"))), Order.NEWEST)
        parts, _ = job_lists.listed(tenant, JobFilter(part_of="team/train"), Order.NEWEST)
        rows = RatedJob.objects.filter(job_id__in=("team/train-0", "team/alone"), tenant=tenant)
        pods = jobs.costed(tenant, list(rows.order_by("-job_id")))
        whole, alone = (job_parts.whole(tenant, pod) for pod in pods)
    assert shown(ended_well) == [("team/train", 2, "20")]
    assert shown(began_early) == [("team/train", 2, "20"), ALONE]
    assert shown(later) == [("team/train", 2, "14"), SLURM, SERVE]
    assert [(job.number, job.parts) for job in parts] == [
        ("team/train-1", None), ("team/train-1", None), ("team/train-0", None),
    ]  # fmt: skip
    assert whole is not None
    assert (shown([whole[0]]), len(whole[1]), alone) == ([TRAIN], 3, None)


def test_a_job_of_parts_was_submitted_with_its_first_part_and_waited_for_its_first_start() -> None:
    kube = a_cluster("kube")
    tenant = a_tenant("vision", plan=a_plan(), accounts=[(kube, "team")])
    ingest(
        kube,
        a_pod(1, "serve-0", "serve", "08:00", "12:00", submitted=f"{BEGIN} 07:50"),
        a_pod(2, "serve-1", "serve", "11:00", "12:00", submitted=f"{BEGIN} 10:59"),
    )
    with tenant_scope(tenant):
        [[serve], _] = job_lists.listed(tenant, JobFilter(), Order.NEWEST)
    columns = [cell.text for cell in cells(serve, headings(("submitted", "started", "waited")), UTC)]
    assert columns == ["2 Mar 2026, 07:50", "2 Mar 2026, 08:00", "00:10:00"]


def test_totals_count_an_unpriced_job_once_however_many_parts_it_has() -> None:
    kube = a_cluster("kube")
    plan = a_plan(prices=[("gpu-hour", {"gpu_model": ["h100"]}, "2.00", LONG_AGO)])
    tenant = a_tenant("vision", plan=plan, accounts=[(kube, "team")])
    unpriced = [a_pod(n, f"train-{n}", "train", "08:00", "10:00", gpu_model="mi300") for n in range(3)]
    ingest(kube, *unpriced, a_pod(4, "serve-x", "serve", "09:00", "12:00"))
    with tenant_scope(tenant):
        totals = job_lists.totals(tenant, JobFilter())
        of_parts = job_lists.totals(tenant, JobFilter(part_of="team/train"))
    assert totals is not None
    assert of_parts is not None
    assert (totals.jobs, totals.unpriced) == (2, 1)
    assert (of_parts.jobs, of_parts.unpriced) == (3, 3)


def second(clock: str) -> int:
    return int(at(f"{BEGIN} {clock}").timestamp())


def test_pages_of_many_jobs_with_parts_miss_none_and_repeat_none_at_a_fixed_number_of_queries() -> None:
    kube = a_cluster("kube")
    tenant = a_tenant("vision", plan=a_plan(), accounts=[(kube, "team")])
    pods = [
        a_pod(job * 10 + part, f"job-{job}-{part}", f"job-{job}", f"{part:02}:{job % 60:02}", "12:00", gpus=1)
        for job in range(120)
        for part in range(3)
    ]
    ingest(kube, *pods)
    period = BillingPeriod.objects.get(tenant=tenant)
    for order in Order:
        numbers: list[str] = []
        counts = set()
        after = ""
        while True:
            with tenant_scope(tenant), CaptureQueriesContext(connection) as queries:
                rows, after = job_lists.listed(tenant, JobFilter(period=period), order, after=after)
            numbers += [job.number for job in rows]
            counts.add(len(queries))
            assert {job.parts.count for job in rows if job.parts} == {3}
            if not after:
                break
        assert sorted(numbers) == sorted(f"team/job-{job}" for job in range(120)), order
        assert len(counts) == 1, order


def test_a_job_of_many_parts_is_listed_without_comparing_each_of_them_with_all() -> None:
    kube, many = a_cluster("kube"), 300
    tenant = a_tenant("vision", plan=a_plan(), accounts=[(kube, "team")])
    pods = [
        a_pod(number, f"serve-{number}", "serve", f"{number // 60:02}:{number % 60:02}", "12:00")
        for number in range(many)
    ]
    ingest(kube, *pods)
    with as_owner() as cursor:
        cursor.execute("ANALYZE billing_ratedjob")
        cursor.execute("SET LOCAL enable_seqscan = off")
    filters = JobFilter()
    every = matching(tenant, filters)
    newest = job_parts.heads(every, every).order_by(*NEWEST_FIRST)
    assert [row.job_id for row in newest] == [f"team/serve-{many - 1}"]
    (plan,) = json.loads(newest.explain(format="json", analyze=True))
    read = sum(
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        for node in nodes(plan["Plan"])
        if "Scan" in node["Node Type"]
    )
    assert many <= read <= 5 * many
