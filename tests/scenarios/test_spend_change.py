"""What a tenant spent by any group, and why it changed, told from usage and documents. Issue items 5 and 6."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from fractions import Fraction

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.catalog import version_terms
from billing.models import PlanVersion
from billing.queries.cost_explorer import CostQuery, Days, Step, explore, filter_choices
from billing.queries.run_counts import MOST_RUNS, JobArray
from billing.queries.spend_change import PartKind, SpendChange, explain_change
from billing.queries.usage_series import Grouping, Interval, usage_series
from billing.rules.spend_change import Runs
from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import acting_scope, tenant_scope
from tests import builders, stories

pytestmark = pytest.mark.django_db

MARCH, APRIL = Days(date(2026, 3, 1), date(2026, 4, 1)), Days(date(2026, 4, 1), date(2026, 5, 1))
DEARER = date(2026, 4, 1)


@pytest.fixture
def cluster() -> Cluster:
    return builders.a_cluster(complete_through="2026-06-01")


@pytest.fixture
def vision(cluster: Cluster) -> Tenant:
    """Until March an hour of an A100 costs $2.00 and of an H100 $4.00; from 1 April an H100 $4.40."""
    a100 = ("gpu-hour", {"gpu_model": ["a100"]}, "2.00", builders.LONG_AGO)
    plan = builders.a_plan(prices=[a100, ("gpu-hour", {"gpu_model": ["h100"]}, "4.00", builders.LONG_AGO)])
    builders.a_plan(
        prices=[a100, ("gpu-hour", {"gpu_model": ["h100"]}, "4.40", DEARER)], effective_from=DEARER
    )
    return builders.a_tenant(plan=plan, accounts=[(cluster, "vision")])


def used(
    cluster: Cluster, gpus: int, day: str, *, model: str = "a100", hours: int = 10, **fields: str
) -> None:
    row = builders.a_job(
        gpus=gpus, gpu_model=model, started=f"{day} 00:00", ended=f"{day} {hours:02}:00", **fields
    )
    builders.ingest(cluster, row)


def change(
    tenant: Tenant,
    *by: Grouping,
    others: bool = True,
    earlier: Days = MARCH,
    later: Days = APRIL,
    most_runs: int = MOST_RUNS,
) -> SpendChange:
    with acting_scope(tenant):
        (one,) = explain_change(tenant, CostQuery(later, earlier, by), others=others, most_runs=most_runs)
    assert sum((part.amount.amount for part in one.parts), Fraction(0)) == one.difference.amount
    return one


def reasons(one: SpendChange) -> list[tuple[str, tuple[str, ...], str]]:
    return [(part.kind.value, part.values, part.amount.text) for part in one.parts]


def test_worked_example_issue_17_6_ben_moves_to_h100_as_that_gets_dearer(
    cluster: Cluster, vision: Tenant
) -> None:
    used(cluster, 10, "2026-03-05")
    used(cluster, 5, "2026-03-06", model="h100")
    used(cluster, 6, "2026-04-05")
    used(cluster, 15, "2026-04-06", model="h100")
    whole = change(vision)
    assert (whole.earlier.text, whole.later.text, whole.difference.text) == ("400.00", "780.00", "380.00")
    assert sorted(reasons(whole)) == [
        ("length", (), "160.00"),
        ("mix", (), "160.00"),
        ("price", (), "60.00"),
    ]
    by_model = change(vision, Grouping.USER, Grouping.GPU_MODEL)
    assert reasons(by_model) == [
        ("length", ("ben", "h100"), "400.00"),
        ("length", ("ben", "a100"), "-80.00"),
        ("price", ("ben", "h100"), "60.00"),
    ]
    price = next(part for part in by_model.parts if part.kind is PartKind.PRICE)
    assert price.price_since == DEARER
    back = change(vision, Grouping.USER, earlier=APRIL, later=MARCH)
    assert back.difference.text == "-380.00"


def test_a_dearer_queue_is_mix_and_no_price(cluster: Cluster) -> None:
    plan = builders.a_plan("queues", prices=[
        ("gpu-hour", {}, "2.00", builders.LONG_AGO), ("gpu-hour", {"queue": ["fast"]}, "3.00", builders.LONG_AGO),
    ])  # fmt: skip
    lab = builders.a_tenant("lab", plan=plan, accounts=[(cluster, "lab")])
    used(cluster, 1, "2026-03-05", account="lab")
    used(cluster, 1, "2026-03-06", account="lab", queue="fast")
    used(cluster, 2, "2026-04-05", account="lab", queue="fast")
    assert reasons(change(lab)) == [("length", (), "25.00"), ("runs", (), "-25.00"), ("mix", (), "10.00")]
    assert reasons(change(lab, Grouping.QUEUE)) == [
        ("length", ("fast",), "30.00"),
        ("runs", ("",), "-20.00"),
    ]


def test_more_runs_and_longer_ones_are_two_reasons_and_an_array_is_named_as_one(
    cluster: Cluster, vision: Tenant
) -> None:
    used(cluster, 1, "2026-03-05", hours=3, job_id="1", name="once")
    used(cluster, 1, "2026-03-06", hours=3, job_id="2", name="once")
    for task in range(5):
        used(cluster, 1, f"2026-04-0{task + 1}", hours=7, job_id=f"30_{task}", name="train")
    builders.ingest(
        cluster,
        builders.a_job(job_id="31_[5-9]", name="train", started=None, ended=None, state="PENDING"),
        builders.a_job(job_id="32", gpus=0, gpu_model="", started="2026-04-09 00:00", ended="2026-04-09 01:00"),
    )  # fmt: skip
    for by in ((), (Grouping.USER,), (Grouping.PROJECT, Grouping.METER)):
        one = change(vision, *by)
        assert (one.earlier.text, one.later.text) == ("12.00", "70.00")
        assert [(part.kind.value, part.amount.text) for part in one.parts] == [
            ("length", "40.00"),  # from 3 hours a run to 7
            ("runs", "18.00"),  # 2, and then 5, at 6.00 each
        ]
        counts = one.parts[1].runs
        assert counts is not None
        assert (counts.runs, counts.array) == (Runs(2, 5), JobArray("ben", "train", 5))


def test_a_run_on_the_border_counts_in_both_ranges_and_what_is_gone_is_all_runs(
    cluster: Cluster, vision: Tenant
) -> None:
    builders.ingest(
        cluster, builders.a_job(gpus=1, started="2026-03-31 20:00", ended="2026-04-01 02:00"),
        builders.a_job(user="eve", gpus=1, started="2026-03-10 00:00", ended="2026-03-10 01:00"),
    )  # fmt: skip
    assert reasons(change(vision, Grouping.USER)) == [
        ("length", ("ben",), "-4.00"),
        ("runs", ("eve",), "-2.00"),
    ]


def test_more_runs_than_are_counted_are_volume(cluster: Cluster, vision: Tenant) -> None:
    used(cluster, 1, "2026-03-05")
    used(cluster, 2, "2026-04-05")
    few, enough = change(vision, most_runs=1), change(vision, most_runs=2)
    assert (few.runs_counted, reasons(few)) == (False, [("volume", (), "20.00")])
    assert (enough.runs_counted, reasons(enough)) == (True, [("length", (), "20.00")])


def test_a_fee_is_a_part_of_its_own_billed_or_not(cluster: Cluster, vision: Tenant) -> None:
    for version in PlanVersion.objects.filter(plan__subscriptions__tenant=vision):
        fee = Decimal(100) if version.effective_from < DEARER else Decimal(130)
        version_terms.set_fee(version=version, name="Base fee", amount=fee, in_advance=False)
    used(cluster, 1, "2026-03-05")
    used(cluster, 1, "2026-04-05")
    stories.close("2026-03", vision)
    one = change(vision)
    assert (one.earlier.text, one.later.text) == ("120.00", "150.00")
    assert reasons(one) == [("other", (), "30.00")]
    assert sorted((row.kind, row.name, row.earlier.text, row.later.text) for row in one.others) == [
        ("", "Base fee", "0.00", "130.00"),
        ("fee", "", "100.00", "0.00"),
    ]
    stories.close("2026-04", vision)
    billed = change(vision)
    assert (billed.difference.text, reasons(billed)) == ("30.00", reasons(one))
    assert change(vision, others=False).parts == []
    with acting_scope(vision):
        filtered = explain_change(
            vision, CostQuery(APRIL, MARCH, (), {Grouping.USER: "ben"}), others=True, most_runs=MOST_RUNS
        )
    assert filtered[0].others == []


def test_late_and_shared_usage_to_the_cent(cluster: Cluster, vision: Tenant) -> None:
    for n in range(7):
        builders.ingest(
            cluster,
            builders.a_job(
                user=f"u{n}", gpu_share=(1, 7), started="2026-03-05 00:00", ended="2026-03-05 00:01"
            ),
            builders.a_job(
                user=f"u{n}", gpu_share=(2, 7), started="2026-04-05 00:00", ended="2026-04-05 00:01"
            ),
        )
    one = change(vision, Grouping.USER)
    assert (one.earlier.text, one.later.text) == ("0.03", "0.07")
    assert sorted(amount for _, _, amount in reasons(one)) == [*["0.00"] * 3, *["0.01"] * 4]


def test_the_explorer_is_the_series_of_the_api_in_any_grouping(cluster: Cluster, vision: Tenant) -> None:
    for n in range(12):
        queue, state = ("a", "", "b")[n % 3], "FAILED" if n % 2 else "COMPLETED"
        used(cluster, 1 + n % 3, f"2026-03-{n + 1:02}", user=f"u{n}", queue=queue, state=state)
    used(cluster, 2, "2026-02-10", user="u1")
    series = usage_series(vision, first=MARCH.first, end=MARCH.end, interval=Interval.DAY)
    february = Days(date(2026, 2, 1), MARCH.first)
    for by in ((), (Grouping.USER,), (Grouping.QUEUE, Grouping.STATE), (Grouping.PROJECT, Grouping.METER)):
        for step in Step:
            with tenant_scope(vision), CaptureQueriesContext(connection) as queries:
                explored = explore(vision, CostQuery(MARCH, february, by), step=step)
            assert len(queries) <= 4  # of them one of the explorer, the others the scope's
            assert (
                explored.later.cost
                == usage_series(vision, first=MARCH.first, end=MARCH.end, interval=Interval.MONTH)[
                    0
                ].whole.cost
            )
            assert explored.earlier.cost[0].text == "40.00"
            for place, total in enumerate(explored.totals):
                cells = [group.cells[place] for group in explored.groups]
                assert sum(one.gpu_seconds for one in cells) == total.gpu_seconds
            if step is Step.DAY:
                assert [one.gpu_seconds for one in explored.totals] == [
                    bucket.whole.gpu_seconds for bucket in series
                ]
    users = explore(vision, CostQuery(MARCH, february, (Grouping.USER,)), step=Step.MONTH)
    assert [group.values for group in users.groups][-1] is None
    assert len(users.groups) == 8
    everybody = explore(vision, CostQuery(MARCH, february, (Grouping.USER,)), step=Step.MONTH, groups=None)
    assert len(everybody.groups) == 12
    assert everybody.later == users.later


def test_another_tenants_usage_is_in_no_figure(cluster: Cluster, vision: Tenant) -> None:
    speech = builders.a_tenant("speech-lab", plan=builders.a_plan("other"), accounts=[(cluster, "speech")])
    used(cluster, 1, "2026-03-05")
    used(cluster, 4, "2026-03-05", account="speech", user="eve", queue="secret")
    with tenant_scope(vision):
        explored = explore(vision, CostQuery(MARCH, APRIL, (Grouping.USER,)), step=Step.WEEK)
        beyond = explore(speech, CostQuery(MARCH, APRIL, (Grouping.USER,)), step=Step.WEEK)
        offered = filter_choices(vision)
        hidden = filter_choices(speech)
    with acting_scope(vision):
        assert explain_change(speech, CostQuery(APRIL, MARCH), others=True, most_runs=MOST_RUNS) == []
    assert change(vision, Grouping.USER).earlier.text == "20.00"
    assert [group.values for group in explored.groups] == [("ben",)]
    assert (beyond.groups, "secret" in offered["queue"]) == ([], False)
    assert not any(hidden.values())
    assert [(one.first.day, one.end.day) for one in explored.buckets][:3] == [(1, 2), (2, 9), (9, 16)]
