"""Pages of a tenant with many jobs read no more of the database than those of one with few."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.db.models import F

from billing import tasks
from billing.catalog import plans
from billing.models import BillingPeriod, LineJobs, Price, RatedJob
from billing.queries import cost_classes, job_lists, jobs, line_usage
from billing.queries.job_lists import Order
from billing.queries.jobs import JobFilter
from billing.rules.meters import PerUnit
from clusters.connectors.base import UsageFact
from portal.core.outbox import outbox
from portal.core.tenants.models import Tenant, User
from tests import sharing
from tests.builders import LONG_AGO, PriceRow, a_cluster, a_job, a_person, a_plan, a_tenant, at, ingest
from tests.stories import closed, invoice_of, prove
from tests.web.house import page

pytestmark = pytest.mark.django_db

FEW, MANY = 400, 8_000
SHOWN = {
    "month": "h100",
    "jobs of a month": "user1",
    "oldest jobs of a month": "user1",
    "jobs of a model": "user1",
    "jobs by cost": "user1",
    "jobs by GPU-hours": "user1",
    "quote": "80.00",
    "costs": "user1",
    "what changed": "user1",
    "efficiency": "Time limits far above use",
    "efficiency by job": "100 %",
    "most expensive": "Most expensive jobs of user1",
    "unused": "user1",
    "search": "user1",
}
"""What of its usage stands on a page, so that none is read of an empty month."""
SESSION = 15  # pages that the tables of sessions and people may have grown by in the meantime


@dataclass
class Labs:
    """Two tenants of one plan, one with many jobs in March, among each other in time; both are billed."""

    few: Tenant
    many: Tenant
    owners: dict[int, User]


def two_labs() -> Labs:
    cluster = a_cluster(complete_through="2026-04-02")
    models = [("gpu-hour", {"gpu_model": [name]}, "2.00", LONG_AGO) for name in ("a100", "h100")]
    plan = a_plan(prices=models)
    few, many = (a_tenant(name, plan=plan, accounts=[(cluster, name)]) for name in ("few", "many"))
    dice = random.Random(3)
    accounts = ["few"] * FEW + ["many"] * MANY
    dice.shuffle(accounts)
    ingest(cluster, *(_ended(dice, n, account) for n, account in enumerate(accounts)))
    running = {
        "started": "2026-03-31 10:00",
        "seen_until": "2026-04-01 10:00",
        "ended": None,
        "state": "RUNNING",
    }
    ingest(cluster, *(a_job(account=name, **running) for name in ("few", "many") for _ in range(5)))
    for lab in (few, many):
        closed("2026-03", lab)
    tasks.render_document(invoice_id=invoice_of(few, "2026-03").pk)
    line_usage.keep(invoice_of(many, "2026-03"))  # the same, without a PDF
    owners = {lab.pk: a_person(f"ann@{lab.slug}.example", lab) for lab in (few, many)}
    return Labs(few, many, owners)


begun, labs = sharing.fixtures(two_labs, "labs")


@pytest.fixture
def cleaned_labs(transactional_db: None) -> Labs:
    """VACUUM cleans what is committed alone."""
    labs = two_labs()
    _vacuum()
    return labs


def _ended(dice: random.Random, number: int, account: str) -> UsageFact:
    start = int(at("2026-03-01").timestamp()) + number * 200
    return a_job(
        account=account,
        user=f"user{number % 7}",
        gpus=1 + dice.randrange(8),
        cpu_milli=1_000 * (1 + dice.randrange(8)),
        gpu_model=dice.choice(["a100", "h100"]),
        time_limit=400_000,
        started=start,
        ended=start + 60 + dice.randrange(80_000),
    )


def _vacuum() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT tableowner FROM pg_tables WHERE tablename = 'schema_level'")
        cursor.execute(f'SET ROLE "{cursor.fetchone()[0]}"')
        cursor.execute("VACUUM ANALYZE")
        cursor.execute("RESET ROLE")


READS_MORE = {"jobs by cost": 2, "jobs by GPU-hours": 2}
"""How many times as much these may read: they look at all jobs of the classes of cost that the page is of."""


@pytest.mark.peers  # takes long
def test_every_page_reads_as_much_for_many_jobs_as_for_few(cleaned_labs: Labs) -> None:
    labs = cleaned_labs
    reads: dict[str, list[int]] = {}
    for lab in (labs.few, labs.many):
        for name, path in addresses(lab).items():
            page(labs.owners[lab.pk], path)  # its statements are planned, and the session is there
            outbox.drain()  # and a worker computes what it requests
            with buffers() as read:
                text = page(labs.owners[lab.pk], path)
            assert SHOWN.get(name, "") in text, name
            reads.setdefault(name, []).append(sum(read))
    grown = {
        name: (few, many)
        for name, (few, many) in reads.items()
        if many > READS_MORE.get(name, 1.2) * few + SESSION
    }
    assert grown == {}
    assert all(few for few, _ in reads.values())


def addresses(lab: Tenant) -> dict[str, str]:
    """By what it shows, all of a tenant's pages that have to do with usage, the others by the way."""
    record = RatedJob.objects.filter(tenant=lab).order_by("record_id")[9].record_id
    invoice = f"invoices/{invoice_of(lab, '2026-03').number}"
    paths = {
        "overview": "",
        "month": "?period=2026-03-01",
        "live": "live/",
        "jobs": "jobs/",
        "jobs of a month": "jobs/?period=2026-03-01",
        "oldest jobs of a month": "jobs/?period=2026-03-01&sort=oldest",
        "jobs of a model": "jobs/?period=2026-03-01&gpu_model=h100",
        "jobs by cost": "jobs/?period=2026-03-01&sort=cost",
        "jobs by GPU-hours": "jobs/?period=2026-03-01&sort=gpu-hours",
        "job": f"jobs/{record}/",
        "calculator": "quote/",
        "quote": "quote/?gpus=4&hours=10&gpu_model=h100",
        "costs": "costs/?from=2026-03-01&through=2026-03-31&by=user",
        "what changed": "costs/change/?from=2026-03-16&through=2026-03-31",
        "efficiency": "efficiency/?from=2026-03-01&through=2026-03-31",
        "efficiency by job": "efficiency/?from=2026-03-01&through=2026-03-31&by=pod",
        "most expensive": "efficiency/?from=2026-03-01&through=2026-03-31&by=user&top=5",
        "unused": "efficiency/waste/time-limit/?from=2026-03-01&through=2026-03-31",
        "search": "search/?q=user1",
        "plan": "plan/",
        "budgets": "budgets/",
        "idle jobs": "idle-jobs/",
        "account": "account/",
        "invoices": "invoices/",
        "invoice": f"{invoice}/",
        "line": f"{invoice}/lines/1/",
        "wallets": "wallets/",
        "payment": "payment/",
        "keys": "api-keys/",
    }
    return {name: f"/t/{lab.slug}/{path}" for name, path in paths.items()}


@contextmanager
def buffers() -> Iterator[list[int]]:
    """Of each statement how many pages of tables and indexes it read, whether from memory or not."""
    read: list[int] = []

    def explain(execute: Any, statement: str, values: Any, many: bool, context: Any) -> Any:
        if statement.lstrip().upper().startswith(("SELECT", "WITH")):
            with connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", values)
                top = cursor.fetchone()[0][0]["Plan"]
                read.append(top["Shared Hit Blocks"] + top["Shared Read Blocks"])
        return execute(statement, values, many, context)

    with connection.execute_wrapper(explain):
        yield read


@pytest.mark.parametrize("order", [Order.COST, Order.GPU_HOURS])
@pytest.mark.parametrize(
    "filters", [JobFilter(), JobFilter(gpu_model="a100"), JobFilter(user="user3", gpu_model="a100")]
)
def test_the_largest_jobs_are_those_that_looking_at_all_of_them_would_find(
    labs: Labs, filters: JobFilter, order: Order
) -> None:
    """One model costs much more than the other, so that classes of hours say little of the cost."""
    price = Price.objects.get(gpu_models=["h100"])
    plans.correct_price(price=price, model=PerUnit(Decimal(9)), reason="Agreed on.")
    for lab in (labs.few, labs.many):
        _reads_as_all(lab, filters, order)


@pytest.mark.parametrize(
    ("prices", "later"),
    [
        ([("gpu-hour", {}, "0.01", LONG_AGO)], [("gpu-hour", {}, "0.02", LONG_AGO)]),
        ([("gpu-hour", {}, "0.01", LONG_AGO)], [("gpu-hour", {}, "900.00", LONG_AGO)]),
        ([("gpu-hour", {"gpu_model": ["h100"]}, "2.00", LONG_AGO)], []),
        ([("gpu-hour", {}, "0.00", LONG_AGO), ("cpu-core-hour", {}, "1.00", LONG_AGO)], []),
        ([("cpu-core-hour", {}, "1.00", LONG_AGO)], []),
    ],
    ids=["several low prices", "a high price", "a model without a price", "free GPUs", "waived GPUs"],
)
def test_jobs_by_gpu_hours_are_in_order_whatever_they_cost(
    prices: list[PriceRow], later: list[PriceRow]
) -> None:
    """Of what is sorted by its cost, or costs nothing, the cost says less or nothing of its GPU-hours."""
    cluster = a_cluster(complete_through="2026-04-02")
    charges = sorted({meter.partition("-")[0] for meter, *_ in prices})
    plan = a_plan(prices=prices, charges=charges)
    if later:
        a_plan(prices=later, charges=charges, effective_from=date(2026, 3, 2))
    lab = a_tenant("lab", plan=plan, accounts=[(cluster, "lab")])
    ingest(cluster, *(_ended(random.Random(n), n, "lab") for n in range(700)))
    _reads_as_all(lab, JobFilter(), Order.GPU_HOURS)


def _reads_as_all(lab: Tenant, filters: JobFilter, order: Order) -> None:
    period = BillingPeriod.objects.get(tenant=lab, start=at("2026-03-01"))
    chosen = replace(filters, period=period)
    ranks = {
        Order.COST: jobs.COST_RANK,
        Order.GPU_HOURS: F("gpu_units") * F("share_num") / F("share_den"),
    }
    rows = jobs.matching(lab, chosen).annotate(rank=ranks[order]).order_by("-rank", "-record_id")
    every, after = list(rows.values_list("record_id", flat=True)), ""
    for start in range(0, min(len(every), 700), jobs.PAGE):
        listed, after = job_lists.listed(lab, chosen, order, after=after)
        assert [job.row.record_id for job in listed] == every[start : start + jobs.PAGE]


def test_classes_of_cost_are_the_same_here_and_in_the_database() -> None:
    values = [Decimal(text) for text in ("0", "0.999999", "1", "1.9", "2", "1249.999999", "1250", "9" * 24)]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT cost_class(v) FROM unnest(%s::numeric[]) WITH ORDINALITY u (v, n) ORDER BY n", [values]
        )
        assert [row[0] for row in cursor.fetchall()] == [cost_classes.cost_class(value) for value in values]


def test_the_jobs_of_a_line_are_the_same_before_and_after_they_are_kept(labs: Labs) -> None:
    for lab in (labs.few, labs.many):
        invoice = invoice_of(lab, "2026-03")
        lines = list(invoice.lines.order_by("position"))
        in_rows = dict(LineJobs.objects.filter(tenant=lab).values_list("line", "jobs"))
        kept = line_usage.counts(invoice, lines, stored=in_rows), [_all_pages(line, 6) for line in lines]
        LineJobs.objects.filter(tenant=lab).delete()
        looked_for = line_usage.counts(invoice, lines, stored={}), [_all_pages(line, 6) for line in lines]
        assert kept == looked_for
        assert [len(jobs) for jobs in kept[1]] == [6 * line_usage.PAGE] * len(lines)
        line_usage.keep(invoice)
        line_usage.keep(invoice)
        assert LineJobs.objects.filter(tenant=lab).count() == len(lines)
    prove()


def _all_pages(line: Any, most: int) -> list[Any]:
    jobs, after = [], None
    for _ in range(most):
        found = line_usage.jobs(line, after=after)
        jobs += [(found.count, job) for job in found.jobs]
        if (after := found.more) is None:
            break
    return jobs
