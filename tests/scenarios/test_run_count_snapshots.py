"""*Why did it change?* of a large tenant: a worker counts its runs, and the page says what counting at once would."""

from __future__ import annotations

from datetime import date, datetime, timedelta

import pytest

from billing.documents.job_users import erase_users
from billing.models import RunCountSnapshot
from billing.queries.cost_explorer import CostQuery, Days
from billing.queries.run_counts import MOST_RUNS
from billing.queries.spend_change import SpendChange, explain_change, explain_with_runs
from billing.queries.usage_series import Grouping
from billing.reports import run_count_snapshots, snapshots
from billing.reports.run_count_snapshots import LoadedCounts
from billing.reports.tasks import forget_old_efficiency
from clusters.models import Cluster
from portal.core.outbox import outbox
from portal.core.outbox.models import OutboxMessage
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import acting_scope, tenant_scope
from tests.builders import a_cluster, a_job, a_plan, a_tenant, at, ingest

pytestmark = pytest.mark.django_db

MARCH, APRIL = Days(date(2026, 3, 1), date(2026, 4, 1)), Days(date(2026, 4, 1), date(2026, 5, 1))
BY_USER = CostQuery(APRIL, MARCH, (Grouping.USER, Grouping.GPU_MODEL))
QUERIES = [
    BY_USER,
    CostQuery(APRIL, MARCH),
    CostQuery(MARCH, APRIL, (Grouping.PROJECT,)),
    CostQuery(APRIL, MARCH, (Grouping.METER, Grouping.STATE)),
    CostQuery(APRIL, MARCH, (Grouping.GPU_MODEL,), {Grouping.USER: "user1"}),
]
NOW = at("2026-05-20 12:00")


@pytest.fixture(autouse=True)
def _every_tenant_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_count_snapshots, "LARGE", 0)


@pytest.fixture
def cluster() -> Cluster:
    return a_cluster(complete_through="2026-06-01")


@pytest.fixture
def lab(cluster: Cluster) -> Tenant:
    tenant = a_tenant("lab", plan=a_plan(), accounts=[(cluster, "lab")])
    run(cluster, "lab", days=40)
    return tenant


def run(cluster: Cluster, account: str, *, days: int) -> None:
    """A job on each day from 10 March on; some are tasks of an array, and some go on to the next month."""
    start = int(at("2026-03-10").timestamp())
    jobs = [
        a_job(
            account=account, user=f"user{day % 3}", gpus=1 + day % 4, gpu_model=["a100", "h100"][day % 2],
            job_id=f"{100 + day // 5}_{day}" if day % 5 == 0 else f"{1000 + day}", name="sweep",
            started=start + day * 86_400, ended=start + day * 86_400 + 3_600 * (1 + day % 30),
        )
        for day in range(days)
    ]  # fmt: skip
    ingest(cluster, *jobs)


def look(
    tenant: Tenant, query: CostQuery = BY_USER, *, moment: datetime = NOW, may_request: bool = True
) -> LoadedCounts:
    with tenant_scope(tenant):
        return run_count_snapshots.load(tenant, query, moment=moment, may_request=may_request)


def explained(tenant: Tenant, query: CostQuery) -> list[SpendChange]:
    """As the page has it."""
    with tenant_scope(tenant):
        counts = run_count_snapshots.load(tenant, query, moment=NOW, may_request=True).counts
        with acting_scope(tenant):
            return explain_change(tenant, query, others=False, counts=counts)


def counted_at_once(tenant: Tenant, query: CostQuery) -> list[SpendChange]:
    with tenant_scope(tenant):
        return explain_with_runs(tenant, query, others=False, most_runs=MOST_RUNS)[0]


@pytest.mark.parametrize("query", QUERIES)
def test_it_says_what_counting_at_once_says_and_before_that_adds_up_without_numbers(
    lab: Tenant, query: CostQuery
) -> None:
    (before,) = explained(lab, query)
    assert not before.runs_counted
    outbox.drain()
    (after,) = explained(lab, query)
    assert [after] == counted_at_once(lab, query)
    assert after.runs_counted
    for one in (before, after):
        assert (
            sum(part.amount.amount for part in one.parts) == one.difference.amount == after.difference.amount
        )


def test_it_is_requested_once_and_stands_while_a_worker_counts_anew(cluster: Cluster, lab: Tenant) -> None:
    first, again = look(lab), look(lab)
    assert (first.counts, first.is_pending, again.is_pending) == (None, True, True)
    requests = OutboxMessage.objects.filter(task=run_count_snapshots.TASK)
    assert requests.count() == 1
    outbox.drain()
    RunCountSnapshot.objects.update(as_of=NOW, seconds=0)
    run(cluster, "lab", days=20)
    assert look(lab, moment=NOW + timedelta(minutes=4)).is_pending is False
    old = look(lab, moment=NOW + timedelta(minutes=5))
    assert (old.is_pending, old.as_of, old.counts is not None) == (True, NOW, True)
    assert requests.count() == 2
    outbox.drain()
    assert explained(lab, BY_USER) == counted_at_once(lab, BY_USER)


def test_each_query_and_time_zone_has_its_own_and_few_wait_at_once(lab: Tenant) -> None:
    for query in QUERIES:
        look(lab, query)
    assert RunCountSnapshot.objects.count() == len(QUERIES) == snapshots.WAITING
    late = look(lab, CostQuery(APRIL, MARCH, (Grouping.QUEUE,)))
    assert (late.counts, late.is_pending, late.is_deferred) == (None, False, True)
    outbox.drain()
    lab.timezone = "Asia/Tokyo"
    lab.save()
    look(lab)
    assert RunCountSnapshot.objects.count() == len(QUERIES) + 1


def test_nothing_is_written_for_whoever_may_not(lab: Tenant) -> None:
    loaded = look(lab, may_request=False)
    assert (loaded.at_once, loaded.as_of, loaded.is_waiting) == (MOST_RUNS, None, False)
    assert RunCountSnapshot.objects.count() == 0
    look(lab)
    outbox.drain()
    RunCountSnapshot.objects.update(as_of=NOW - timedelta(days=1))
    loaded = look(lab, may_request=False)
    assert (loaded.as_of, loaded.is_pending) == (NOW - timedelta(days=1), False)


def test_another_tenant_has_its_own(cluster: Cluster, lab: Tenant) -> None:
    other = a_tenant("other", plan=a_plan("other"), accounts=[(cluster, "other")])
    run(cluster, "other", days=25)
    for tenant in (lab, other):
        look(tenant)
    outbox.drain()
    with tenant_scope(other):
        assert list(RunCountSnapshot.objects.values_list("tenant", flat=True)) == [other.pk]
    for tenant in (lab, other):
        assert explained(tenant, BY_USER) == counted_at_once(tenant, BY_USER)


def test_it_goes_when_nobody_looks_and_when_people_are_erased(lab: Tenant) -> None:
    look(lab, QUERIES[1])
    outbox.drain()
    RunCountSnapshot.objects.update(as_of=NOW - timedelta(days=400))
    look(lab)
    outbox.drain()
    forget_old_efficiency()
    (kept,) = RunCountSnapshot.objects.all()
    assert "user1" in str(kept.rows)
    erase_users(lab)
    assert RunCountSnapshot.objects.count() == 0
    RunCountSnapshot.objects.create(tenant=lab, query={}, digest="", rows=[["user1"]])  # counted meanwhile
    outbox.drain()
    assert RunCountSnapshot.objects.count() == 0
