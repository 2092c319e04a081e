"""Kill -9 at any moment: an import or a close that is run again ends as if nothing had happened."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from billing.models import Invoice, InvoiceLine, PeriodTotal, RatedJob
from billing.rating.ingest import BATCH
from clusters.models import Cluster, Pull, UsageRecord, UsageRevision
from portal.core.outbox.models import OutboxMessage
from tests.builders import LONG_AGO, a_cluster, a_plan, a_tenant
from tests.integration.operators import Operator, accounting
from tests.stories import prove

pytestmark = pytest.mark.usefixtures("transactional_db")

ROWS, TENANTS, KILLS = 20_000, 40, 5


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 10))])
def test_case_089_killed_at_any_moment_and_run_again_it_ends_the_same(
    seed: int, database_url: str, tmp_path: Path
) -> None:
    """The cluster `calm` is imported and closed undisturbed, `storm` with the same file is not."""
    file = accounting(tmp_path / "march.sacct", rows=ROWS, accounts=TENANTS)
    two_alike()
    dice = random.Random(seed)

    with Operator(database_url) as op:
        read = "--as-of", "2024-05-03"
        took = op.does("import_usage", "calm", file, *read)
        batch = took * BATCH / ROWS
        killed = 0
        for kill in range(KILLS):  # each a little further on than the one before, the first before any row
            row_count = ROWS * kill // (KILLS + 1) // BATCH * BATCH
            killed += op.is_killed_doing(
                "import_usage", "storm", file, *read, count=stored_by_storm, at=row_count,
                after=dice.uniform(0, batch / 3),  # it is faster alone than the first time
            )  # fmt: skip
        assert killed >= 2
        op.does("import_usage", "storm", file, *read)

        assert stored_by_storm() == ROWS
        assert ledger("storm") == ledger("calm")
        assert rated("storm") == rated("calm")
        assert totals("storm") == totals("calm")
        assert jobs("storm") == jobs("calm")
        assert not UsageRevision.objects.exists()
        marks = set(Cluster.objects.values_list("complete_through", flat=True))
        assert {f"{mark:%Y-%m-%d}" for mark in marks} == {"2024-05-03"}
        assert Pull.objects.filter(cluster__name="storm", outcome=Pull.Outcome.DONE).exists()
        prove()

        killed = 0
        for month in ("2024-02", "2024-03", "2024-04"):  # March began in February where it is still night
            took = op.does("close_period", month, "--as-of", "2024-05-03", *of("calm"))
            for kill in range(KILLS):  # they are closed some at a time; one kill waits for the first of them
                command = "close_period", month, "--as-of", "2024-05-03", *of("storm")
                killed += op.is_killed_doing(
                    *command,
                    count=issued_by_storm,
                    at=issued_by_storm() + (kill == 2),
                    after=dice.uniform(0, took / 6),
                )
            op.does("close_period", month, "--as-of", "2024-05-03", *of("storm"))

    assert killed >= KILLS
    issued = invoices("storm")
    assert len(issued) > TENANTS
    assert issued == invoices("calm")
    numbers = sorted(str(number) for number in Invoice.objects.values_list("number", flat=True))
    assert numbers == [f"INV-2024-{number:04d}" for number in range(1, 2 * len(issued) + 1)]
    assert OutboxMessage.objects.count() == len(numbers)  # one document each, to be made
    assert prove()["pending"] == 0


def of(name: str) -> list[str]:
    return [word for number in range(TENANTS) for word in ("--tenant", f"{name}-{number:02d}")]


def two_alike() -> None:
    """The clusters `calm` and `storm`, each with forty tenants who are charged alike."""
    plan = a_plan(
        prices=[("gpu-hour", {}, "1.37", LONG_AGO), ("cpu-core-hour", {}, "0.011", LONG_AGO)],
        charges=("gpu", "cpu"),
    )
    for name in ("calm", "storm"):
        cluster = a_cluster(name)
        for number in range(TENANTS):
            zone = ("UTC", "America/Los_Angeles")[number % 2]
            a_tenant(
                f"{name}-{number:02d}", plan=plan, timezone=zone, accounts=[(cluster, f"acc{number:02d}")]
            )


def stored_by_storm() -> int:
    return UsageRecord.objects.filter(cluster__name="storm").count()


def issued_by_storm() -> int:
    return Invoice.objects.filter(tenant__slug__startswith="storm", number__isnull=False).count()


def ledger(cluster: str) -> list[Any]:
    left_out = {"id", "cluster_id", "account_id", "last_seen"}
    fields = [field.attname for field in UsageRecord._meta.concrete_fields if field.attname not in left_out]
    rows = UsageRecord.objects.filter(cluster__name=cluster).order_by("source_key")
    return list(rows.values_list("account__name", *fields))


def rated(cluster: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT u.source_key, r.resource, r.service_from, r.service_to, r.service_month, r.verdict, r.price_id,"
            " r.units, r.share_num, r.share_den, r.generation, r.reversal"
            " FROM billing_ratedusage r JOIN clusters_usagerecord u ON u.id = r.record_id"
            " JOIN clusters_cluster c ON c.id = u.cluster_id WHERE c.name = %s ORDER BY 1, 2, 3",
            [cluster],
        )
        return list(cursor.fetchall())


def totals(cluster: str) -> list[Any]:
    rows = PeriodTotal.objects.filter(tenant__slug__startswith=cluster).order_by(
        "tenant__slug", "period__start", "resource", "verdict", "gpu_model"
    )
    values = rows.values_list(
        "tenant__slug",
        "period__start",
        "project__name",
        "resource",
        "verdict",
        "gpu_model",
        "units",
    )
    return [(slug.removeprefix(cluster), *rest) for slug, *rest in values]


def jobs(cluster: str) -> list[Any]:
    rows = RatedJob.objects.filter(cluster=cluster).order_by("record_id")
    return sorted(
        rows.values_list("job_id", "account", "user", "started", "ended", "gpu_units", "cost_units", "state")
    )


def invoices(cluster: str) -> list[Any]:
    """Each invoice of the cluster's tenants with its lines, but for its number."""
    summaries = []
    for invoice in Invoice.objects.filter(tenant__slug__startswith=cluster).order_by(
        "tenant__slug", "period_start"
    ):
        lines = InvoiceLine.objects.filter(invoice=invoice).order_by("position")
        summaries.append(
            (
                invoice.buyer["slug"].removeprefix(cluster), invoice.period_start, invoice.state, invoice.total,
                list(lines.values_list("project", "meter", "seconds_num", "seconds_den", "unit_price", "amount")),
            )
        )  # fmt: skip
    return summaries
