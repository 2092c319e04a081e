"""Op asks what came of the GPUs: allocated, effective, waste and unknown, in GPU-hours and money."""

from __future__ import annotations

from datetime import date, timedelta
from fractions import Fraction
from itertools import pairwise

import pytest

from billing.rating import engine
from billing.reports.reporting import ReportError, of_tenant
from billing.reports.shapes import By, Standing
from clusters import capacity
from clusters.connectors.base import NodeSeen, NodeState
from clusters.models import Cluster, UsageRecord
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import tenant_scope
from tests.builders import a_cluster, a_job, a_plan, a_tenant, at, ingest, own
from tests.scenarios.reports import hours, report, report_rows, worked, written
from tests.stories import prove
from tests.terms import GRADUATED, a_plan_of

pytestmark = pytest.mark.django_db

MARCH = {"since": int(at("2026-03-01").timestamp()), "until": int(at("2026-04-01").timestamp())}


def two_labs() -> Cluster:
    """Vision at 2.00 a GPU-hour, speech at 1.25."""
    cluster = a_cluster()
    a_tenant("vision-lab", plan=a_plan("two"), accounts=[(cluster, "vision")])
    speech = a_plan("cheap", prices=[("gpu-hour", {}, "1.25", date(2017, 1, 1))])
    a_tenant("speech-lab", plan=speech, accounts=[(cluster, "speech")])
    return cluster


def test_what_devices_worked_is_effective_what_they_did_not_is_waste_and_the_rest_is_unknown() -> None:
    cluster = two_labs()
    ingest(
        cluster,
        a_job(job_id="1", gpus=2, started="2026-03-02 10:00", ended="2026-03-02 13:00"),
        a_job(job_id="2", account="speech", started="2026-03-02 10:00", ended="2026-03-02 12:00"),
    )
    worked("1", "2026-03-02 10:00", "1800", covered=7200)
    worked("1", "2026-03-02 11:00", "5400", covered=7200)
    assert report_rows(report(cluster)) == [
        ("gpu1 / vision", "charged", "6 = 2 + 2 + 2", "12 = 4 + 4 + 4 USD"),
        ("gpu1 / speech", "charged", "2 = 0 + 0 + 2", "2.5 = 0 + 0 + 2.5 USD"),
    ]
    vision, speech = report(cluster).rows
    assert [(of.source, of.metric, written(of.covered)) for of in vision.sources] == [
        ("device", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "14400")
    ]
    assert (vision.seconds.coverage, vision.seconds.utilisation) == (Fraction(2, 3), Fraction(1, 2))
    assert (speech.seconds.coverage, speech.seconds.utilisation) == (Fraction(0), None)
    assert speech.sources == ()


def test_it_is_told_by_whatever_is_asked_for() -> None:
    cluster = two_labs()
    ingest(
        cluster,
        a_job(job_id="1", user="ben", name="train"),
        a_job(job_id="2", user="ada", gpu_model="h100"),
        a_job(job_id="3", user="ben", account="speech"),
    )
    expected = {
        By.TENANT: {"vision-lab": "2", "speech-lab": "1"},
        By.PROJECT: {"vision-lab / vision": "2", "speech-lab / speech": "1"},
        By.NAMESPACE: {"gpu1 / vision": "2", "gpu1 / speech": "1"},
        By.MODEL: {"a100": "2", "h100": "1"},
        By.USER: {"ben": "2", "ada": "1"},
        By.POD: {
            "vision-lab / gpu1 / vision / ben / 1 / train / a100": "1",
            "vision-lab / gpu1 / vision / ada / 2 / – / h100": "1",
            "speech-lab / gpu1 / speech / ben / 3 / – / a100": "1",
        },
    }
    for by, groups in expected.items():
        usage_report = report(cluster, by=by)
        assert {
            names: usage.partition(" ")[0] for names, _, usage, _ in report_rows(usage_report)
        } == groups, by
        assert (usage_report.jobs, sum(row.jobs for row in usage_report.rows)) == (3, 3)


def test_use_that_is_not_charged_has_hours_without_money_and_says_why() -> None:
    cluster = a_cluster()
    a_tenant("vision-lab", plan=a_plan(), accounts=[(cluster, "vision")])
    a_tenant("free-lab", plan=a_plan("free", prices=(), charges=["cpu"]), accounts=[(cluster, "free")])
    a_tenant("new-lab", accounts=[(cluster, "new")])
    ingest(
        cluster,
        *(a_job(account=account, gpus=n + 1) for n, account in enumerate(["vision", "free", "new", "whose"])),
    )
    usage_report = report(cluster, by=By.TENANT)
    assert report_rows(usage_report) == [
        ("vision-lab", "charged", "1 = 0 + 0 + 1", "2 = 0 + 0 + 2 USD"),
        ("–", "unassigned", "4 = 0 + 0 + 4", ""),
        ("new-lab", "unpriced", "3 = 0 + 0 + 3", ""),
        ("free-lab", "waived", "2 = 0 + 0 + 2", ""),
    ]
    assert hours(usage_report) == "10"
    assert prove()["allocated"] == 10 * 3600
    assert "no price yet" in usage_report.notes[0]


def test_currencies_stand_beside_each_other() -> None:
    cluster = two_labs()
    a_tenant("lyon-lab", plan=a_plan("euros", "EUR"), accounts=[(cluster, "lyon")])
    ingest(cluster, a_job(), a_job(account="lyon"))
    usage_report = report(cluster, by=By.MODEL)
    assert report_rows(usage_report) == [
        ("a100", "charged", "1 = 0 + 0 + 1", "2 = 0 + 0 + 2 EUR"),
        ("a100", "charged", "1 = 0 + 0 + 1", "2 = 0 + 0 + 2 USD"),
    ]
    assert {code: money.allocated for code, money in usage_report.money.items()} == {"EUR": 2, "USD": 2}


def test_processors_and_memory_are_money_beside_the_gpus() -> None:
    cluster = a_cluster()
    since = date(2017, 1, 1)
    plan = a_plan(
        prices=[("gpu-hour", {}, "2.00", since), ("cpu-core-hour", {}, "0.01", since)], charges=["gpu", "cpu"]
    )
    a_tenant("vision-lab", plan=plan, accounts=[(cluster, "vision")])
    ingest(cluster, a_job(cpu_milli=16_000), a_job(gpus=0, cpu_milli=8_000))
    (row,) = report(cluster).rows
    assert row.money is not None
    assert [str(amount) for amount in (row.money.allocated, row.other, row.cost)] == ["2", "6/25", "56/25"]
    assert row.jobs == 1


def test_a_price_by_tiers_counts_with_its_first_and_says_so() -> None:
    cluster = a_cluster()
    a_tenant("vision-lab", plan=a_plan_of(GRADUATED), accounts=[(cluster, "vision")])
    ingest(cluster, a_job(gpus=200))
    usage_report = report(cluster)
    assert report_rows(usage_report) == [
        ("gpu1 / vision", "charged", "200 = 0 + 0 + 200", "600 = 0 + 0 + 600 USD")
    ]
    assert "at the price of the first unit" in usage_report.notes[0]


def test_a_slice_counts_as_its_part_of_a_gpu() -> None:
    cluster = two_labs()
    ingest(cluster, a_job(job_id="1", gpus=3, gpu_share=(1, 7), mig_profile="1g.5gb"))
    worked("1", "2026-03-02 10:00", "3600", covered=10_800)
    assert report_rows(report(cluster)) == [
        ("gpu1 / vision", "charged", "3/7 = 1/7 + 2/7 + 0", "6/7 = 2/7 + 4/7 + 0 USD")
    ]


def test_a_period_cuts_what_runs_over_its_borders() -> None:
    cluster = two_labs()
    ingest(cluster, a_job(job_id="1", gpus=2, started="2026-03-02 10:00", ended="2026-03-02 13:00"))
    for hour in ("10:00", "11:00", "12:00"):
        worked("1", f"2026-03-02 {hour}", "1800", covered=7200)
    assert report_rows(report(cluster, "2026-03-02 10:30", "2026-03-02 11:15")) == [
        ("gpu1 / vision", "charged", "1.5 = 0.375 + 1.125 + 0", "3 = 0.75 + 2.25 + 0 USD")
    ]
    assert report(cluster, "2026-03-02 13:00", "2026-03-03").rows == []


def test_reports_of_parts_add_up_to_the_report_of_the_whole() -> None:
    """Also of a suspended run, whose held seconds have no position, and with borders that cut hours."""
    cluster = two_labs()
    borders = [
        "2026-03-02",
        "2026-03-02 10:00:01",
        "2026-03-02 10:17:31",
        "2026-03-02 11:44:59",
        "2026-03-03",
    ]
    ingest(
        cluster,
        a_job(job_id="1", gpus=3, started="2026-03-02 09:59:59", ended="2026-03-02 12:00:03", suspended=1234),
        a_job(job_id="2", started="2026-03-02 10:00", ended="2026-03-02 12:00", gpu_share=(1, 7)),
        a_job(
            job_id="3", account="whose", started="2026-03-02 10:00:07", ended="2026-03-02 12:00", suspended=99
        ),
    )
    worked("1", "2026-03-02 10:00", "1111.123456789", covered=8765)
    worked("1", "2026-03-02 11:00", "77.7", covered=10_800)  # more than it held
    worked("2", "2026-03-02 11:00", "3600")
    worked("3", "2026-03-02 11:00", "1000.000000001", covered=3333)
    whole = report(cluster, borders[0], borders[-1])
    parts = [report(cluster, *pair) for pair in pairwise(borders)]
    for row in whole.rows:
        of = [part for usage_report in parts for part in usage_report.rows if part.labels == row.labels]
        assert sum((part.seconds.allocated for part in of), 0) == row.seconds.allocated
        assert sum((part.seconds.covered for part in of), 0) == row.seconds.covered
        assert sum((part.seconds.effective for part in of), 0) == row.seconds.effective
        assert all(part.seconds.unknown >= 0 and part.seconds.waste >= 0 for part in of)
    assert [usage_report.notes[1:] for usage_report in (whole, *parts)] == [
        []
    ] * 5  # none differs from the ledger


def test_a_second_of_an_hour_is_never_busier_than_it_was_covered() -> None:
    cluster = two_labs()
    ingest(cluster, a_job(job_id="1", started="2026-03-02 10:00", ended="2026-03-02 11:00"))
    worked("1", "2026-03-02 10:00", "3599", covered=3599)
    for second in ("2026-03-02 10:00:00", "2026-03-02 10:59:59"):
        until = (at(second) + timedelta(seconds=1)).strftime("%Y-%m-%d %H:%M:%S")
        (row,) = report(cluster, second, until).rows
        assert row.seconds.waste == 0
        assert row.seconds.allocated == 1


def test_use_that_changed_its_owner_is_told_of_each_for_its_part() -> None:
    cluster = two_labs()
    ingest(cluster, a_job(job_id="1", account="shared", started="2026-03-02 10:00", ended="2026-03-02 14:00"))
    for hour, busy in (("10:00", "3600"), ("11:00", "0"), ("12:00", "1800"), ("13:00", "900")):
        worked("1", f"2026-03-02 {hour}", busy)
    labs = {tenant.slug: tenant for tenant in tenants()}
    own(labs["vision-lab"], cluster, "shared", since="2026-03-02 11:00", until="2026-03-02 12:30")
    own(labs["speech-lab"], cluster, "shared", since="2026-03-02 12:30")
    assert report_rows(report(cluster, by=By.TENANT)) == [
        ("vision-lab", "charged", "1.5 = 0.25 + 1.25 + 0", "3 = 0.5 + 2.5 + 0 USD"),
        ("speech-lab", "charged", "1.5 = 0.5 + 1 + 0", "1.875 = 0.625 + 1.25 + 0 USD"),
        ("–", "unassigned", "1 = 1 + 0 + 0", ""),
    ]
    for slug, expected in (("vision-lab", "1.5 = 0.25 + 1.25 + 0"), ("speech-lab", "1.5 = 0.5 + 1 + 0")):
        with tenant_scope(labs[slug]):
            assert [
                usage for _, _, usage, _ in report_rows(of_tenant(labs[slug], **MARCH, by=By.TENANT))
            ] == [expected]


def test_what_was_rated_again_counts_once() -> None:
    cluster = two_labs()
    ingest(cluster, a_job(job_id="1", source_key="1", ended=None, seen_until="2026-03-02 10:40"))
    ingest(cluster, a_job(job_id="1", source_key="1", ended=None, seen_until="2026-03-02 11:40"))
    ingest(cluster, a_job(job_id="1", source_key="1", ended="2026-03-02 12:00", gpus=2))
    worked("1", "2026-03-02 10:00", "3600", covered=7200)
    engine.rate_accounts(list(UsageRecord.objects.values_list("account_id", flat=True)))
    assert report_rows(report(cluster)) == [
        ("gpu1 / vision", "charged", "4 = 1 + 1 + 2", "8 = 2 + 2 + 4 USD")
    ]
    assert report(cluster, by=By.POD).jobs == 1


def test_of_pods_only_the_most_expensive_are_told_one_by_one() -> None:
    cluster = two_labs()
    ingest(
        cluster,
        *(a_job(job_id=str(n), gpus=n) for n in range(1, 6)),
        a_job(job_id="6", gpus=9, account="whose"),
    )
    worked("2", "2026-03-02 10:00", "7200", covered=7200)
    usage_report = report(cluster, by=By.POD, limit=2)
    assert [(names.split(" / ")[-3:][0], *rest) for names, *rest in report_rows(usage_report)] == [
        ("5", "charged", "5 = 0 + 0 + 5", "10 = 0 + 0 + 10 USD"),
        ("4", "charged", "4 = 0 + 0 + 4", "8 = 0 + 0 + 8 USD"),
        ("the others", "charged", "6 = 2 + 0 + 4", "12 = 4 + 0 + 8 USD"),
        ("the others", "unassigned", "9 = 0 + 0 + 9", ""),
    ]
    assert [row.jobs for row in usage_report.rows] == [1, 1, 3, 1]


def test_the_most_expensive_jobs_of_each_team_are_named() -> None:
    cluster = two_labs()
    ingest(
        cluster,
        *(a_job(job_id=str(n), gpus=n, name=f"run-{n}") for n in range(1, 8)),
        a_job(job_id="9", account="speech"),
    )
    vision, speech = report(cluster, by=By.TENANT, top_jobs=5).rows
    assert [(job.pod, job.name, written(job.cost)) for job in vision.top_jobs] == [
        (str(n), f"run-{n}", str(2 * n)) for n in (7, 6, 5, 4, 3)
    ]
    assert [(job.pod, job.user, written(job.cost)) for job in speech.top_jobs] == [("9", "ben", "1.25")]


def test_idle_down_and_drained_capacity_stand_apart_from_use() -> None:
    cluster = two_labs()
    ingest(
        cluster,
        a_job(gpus=3, started="2026-03-02 10:00", ended="2026-03-02 12:00"),
        as_of="2026-03-03",
    )
    looks = (
        ("2026-03-02", NodeState.UP),
        ("2026-03-02 12:00", NodeState.DRAINED),
        ("2026-03-02 18:00", NodeState.DOWN),
    )
    for moment, state in looks:
        nodes = [NodeSeen(name="n1", gpu_model="a100", gpus=4, state=state)]
        capacity.observe(cluster, nodes, at(moment))
    cluster.refresh_from_db()
    usage_report = report(cluster, "2026-03-02", "2026-03-03")
    assert usage_report.capacity is not None
    (of,) = usage_report.capacity.models
    assert [part / 3600 for part in (of.total, of.down, of.drained, of.idle, of.allocated)] == [
        96,
        24,
        24,
        42,
        6,
    ]
    assert of.total == of.down + of.drained + of.idle + of.allocated
    assert usage_report.notes == []


def test_a_period_that_nodes_were_not_looked_at_says_so() -> None:
    cluster = two_labs()
    ingest(cluster, a_job(gpus=8, started="2026-03-02 10:00", ended="2026-03-02 16:00"), as_of="2026-03-03")
    usage_report = report(cluster)
    assert usage_report.capacity is None
    (note,) = usage_report.notes
    assert note == (
        "The capacity in this period is unknown, so idle GPUs are not shown. A connected cluster records its capacity "
        "from the first sync on; for file import, declare the nodes."
    )
    nodes = [NodeSeen(name="n1", gpu_model="a100", gpus=4, state=NodeState.UP)]
    capacity.observe(cluster, nodes, at("2026-03-02 12:00"))
    cluster.refresh_from_db()
    usage_report = report(cluster)
    assert usage_report.capacity is not None
    assert [
        part / 3600 for part in (usage_report.capacity.whole.total, usage_report.capacity.whole.allocated)
    ] == [48, 32]
    (note,) = usage_report.notes
    assert note == (
        "Capacity is known only from 2026-03-02 12:00 UTC to 2026-03-03 00:00 UTC; its figures cover that part."
    )
    usage_report = report(cluster, "2026-03-02 12:00", "2026-03-02 16:00")
    (note,) = usage_report.notes
    assert note == (
        "16 more GPU-hours of a100 were allocated than its nodes had up: nodes changed between two syncs, or the model "
        "has two names."
    )


def test_a_report_of_one_tenant_shows_its_use_alone() -> None:
    cluster = two_labs()
    ingest(cluster, a_job(), a_job(account="speech"), a_job(account="whose"))
    labs = {tenant.slug: tenant for tenant in tenants()}
    assert [row[0] for row in report_rows(report(cluster, by=By.TENANT, tenant=labs["speech-lab"]))] == [
        "speech-lab"
    ]


def test_a_tenant_reads_what_the_operator_reads_of_it() -> None:
    cluster = two_labs()
    ingest(
        cluster,
        a_job(job_id="1", started="2026-03-02 09:50", ended="2026-03-02 12:00", suspended=600, name="train"),
        a_job(job_id="2", account="speech"),
        a_job(account="whose"),
    )
    worked("1", "2026-03-02 10:00", "1234.5", covered=3000)
    worked("2", "2026-03-02 10:00", "100")
    for tenant in tenants():
        for by in By:
            everything = report_rows(
                report(cluster, by=by, tenant=tenant, since="2026-03-02 10:13", until="2026-03-03")
            )
            with tenant_scope(tenant):
                mine = of_tenant(
                    tenant, since=MARCH["since"] + 86_400 + 10 * 3600 + 780, until=MARCH["until"], by=by
                )
            assert report_rows(mine) == everything, by
            assert len(mine.rows) == 1


def test_a_tenants_own_report_names_its_most_expensive_jobs() -> None:
    cluster = two_labs()
    ingest(cluster, a_job(job_id="1", name="train"), a_job(job_id="2", account="speech"))
    (vision,) = [tenant for tenant in tenants() if tenant.slug == "vision-lab"]
    with tenant_scope(vision):
        (row,) = of_tenant(vision, **MARCH, by=By.PROJECT, top_jobs=5).rows
    assert [job.name for job in row.top_jobs] == ["train"]


def test_a_period_without_use_has_no_rows() -> None:
    cluster = two_labs()
    usage_report = report(cluster)
    assert (usage_report.rows, usage_report.jobs, usage_report.money, hours(usage_report, Standing)) == (
        [],
        0,
        {},
        "0",
    )


def test_a_period_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(ReportError, match="ends before it begins"):
        report(two_labs(), "2026-03-02", "2026-03-01")


def tenants() -> list[Tenant]:
    return list(Tenant.objects.order_by("-slug"))
