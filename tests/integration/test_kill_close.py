"""Kill -9 at any moment of a close: run again, it ends as one that nobody disturbed. A hundred seeds with --long."""

from __future__ import annotations

import random
from datetime import date, datetime
from decimal import Decimal

import pytest

from billing.catalog import version_terms
from billing.models import Invoice, InvoiceLine
from portal.core.outbox.models import OutboxMessage
from tests.builders import LONG_AGO, a_cluster, a_job, a_plan, a_tenant, ingest
from tests.integration.operators import Operator
from tests.stories import prove

pytestmark = pytest.mark.usefixtures("transactional_db")

TENANTS, KILLS = 12, 3
AT_ONCE = 5  # seeds in one world: each closes the month after the one before it
SEEDS = range(0, 100, AT_ONCE)


@pytest.mark.parametrize("first", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in SEEDS[1:])])
def test_case_089_a_close_that_is_killed_at_any_moment_ends_the_same(first: int, database_url: str) -> None:
    """The tenants of `calm` are closed undisturbed, those of `storm`, who used the same, are not."""
    two_alike(random.Random(first))
    killed = 0
    with Operator(database_url) as op:
        for seed in range(first, first + AT_ONCE):
            dice = random.Random(seed)
            month = f"2024-{seed - first + 1:02d}"
            command = "close_period", month, "--as-of", "2024-09-03"
            took = op.does(*command, *of("calm"))
            for kill in range(KILLS):  # one of them waits for the first invoices
                killed += op.is_killed_doing(
                    *command, *of("storm"),
                    count=issued_by_storm,
                    at=issued_by_storm() + (kill == 1),
                    after=dice.uniform(0, took * (0.2 if kill == 1 else 0.9)),
                )  # fmt: skip
            op.does(*command, *of("storm"))
            assert invoices("storm", month) == invoices("calm", month), seed
            assert len(invoices("storm", month)) == TENANTS
    assert killed >= AT_ONCE
    count = 2 * TENANTS * AT_ONCE
    numbers = sorted(str(number) for number in Invoice.objects.values_list("number", flat=True))
    assert numbers == [f"INV-2024-{number:04d}" for number in range(1, count + 1)]
    assert OutboxMessage.objects.count() == count  # one document each, to be made
    assert prove()["pending"] == 0


def of(name: str) -> list[str]:
    return [word for number in range(TENANTS) for word in ("--tenant", f"{name}-{number:02d}")]


def two_alike(dice: random.Random) -> None:
    """Twelve tenants twice, in two zones, with five months of jobs, a fee in advance and a commitment."""
    plan = a_plan(prices=[("gpu-hour", {}, "1.37", LONG_AGO)])
    version = plan.versions.get()
    version_terms.set_fee(version=version, name="Access", amount=Decimal("9.99"), in_advance=True)
    version_terms.set_commitment(version=version, amount=Decimal(40), overage_factor=Decimal("1.5"))
    clusters = [a_cluster(name, complete_through="2024-09-01") for name in ("calm", "storm")]
    for cluster in clusters:
        for number in range(TENANTS):
            zone = ("UTC", "America/Los_Angeles")[number % 2]
            a_tenant(
                f"{cluster.name}-{number:02d}", plan=plan, plan_from=date(2024, 1, 1), timezone=zone,
                accounts=[(cluster, f"acc{number:02d}")],
            )  # fmt: skip
    start, end = (
        int(datetime.fromisoformat(f"2024-{day}T12:00+00:00").timestamp()) for day in ("01-01", "05-28")
    )
    jobs = []
    for number in range(TENANTS * AT_ONCE * 4):
        began = dice.randrange(start, end)
        jobs.append(
            a_job(
                source_key=f"{number}@1", account=f"acc{number % TENANTS:02d}", gpus=dice.randint(1, 4),
                started=began, submitted=began, ended=min(began + dice.choice([37, 5_000, 90_000]), end),
            )
        )  # fmt: skip
    for cluster in clusters:
        ingest(cluster, *jobs)


def issued_by_storm() -> int:
    return Invoice.objects.filter(tenant__slug__startswith="storm", number__isnull=False).count()


def invoices(cluster: str, month: str) -> list[object]:
    """Each invoice of the month with its lines, but for its number."""
    summaries: list[object] = []
    rows = Invoice.objects.filter(tenant__slug__startswith=cluster).order_by("tenant__slug", "period_start")
    for invoice in rows:
        if f"{invoice.period_start:%Y-%m}" == month:
            lines = InvoiceLine.objects.filter(invoice=invoice).order_by("position")
            columns = lines.values_list(
                "kind", "service_period__start", "seconds_num", "seconds_den", "amount"
            )
            slug = invoice.buyer["slug"].removeprefix(cluster)
            summaries.append((slug, invoice.period_start, invoice.state, invoice.total, list(columns)))
    return summaries
