"""Kill -9 while prices are corrected and borders moved, for billed months: it ends as if nothing had happened."""

from __future__ import annotations

import random
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from django.db import connection, transaction
from django.db.models import Sum

from billing.catalog import plans
from billing.models import InvoiceLine, PriceCorrection
from billing.rules.meters import PerUnit
from portal.core.outbox import outbox
from portal.core.tenants.models import Tenant
from tests.builders import LONG_AGO, a_cluster, a_job, a_plan, a_seller, a_tenant, ingest
from tests.integration.operators import Operator
from tests.stories import prove

pytestmark = pytest.mark.usefixtures("transactional_db")

TENANTS, JOBS, KILLS = 4, 600, 5
FILE = """[[plan]]
name = "{plan}"
currency = "USD"
charges = ["gpu"]
from = {since}

[[plan.price]]
meter = "gpu-hour"
unit_price = "{amount}"
correction = "agreed"
"""


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 10))])
def test_prices_that_change_for_the_past_while_they_are_killed_bill_the_same(
    seed: int, database_url: str, tmp_path: Path
) -> None:
    """Five kills a seed: in the ten of them fifty. Each round is billed with a month of its own."""
    dice = random.Random(seed)
    two_alike(dice)
    amounts = [f"{cents / 100:.2f}" for cents in dice.sample(range(201, 400), KILLS)]
    killed = 0
    with Operator(database_url) as op:
        close(op, 3)
        rows = rated("storm")
        for kill in range(KILLS):
            if kill < KILLS - 2:
                files = {
                    name: written(tmp_path / f"{name}.toml", name, amounts[kill])
                    for name in ("calm", "storm")
                }
                took = op.does("apply", files["calm"])
                again: tuple[object, ...] = ("apply", files["storm"])
            else:
                move_border(date(2024, 3, 10 + kill))
                again = ("task", "portal.core.outbox.outbox.drain")
                rate("calm")
                took = op.does(*again)
                rate("storm")
            killed += op.is_killed_doing(*again, count=lambda: 1, at=1, after=dice.uniform(0, 0.8 * took))
            op.does(*again)
            if kill < KILLS - 2:
                assert rated("storm") == rows
            close(op, 4 + kill)
            assert billed("storm") == billed("calm")
    assert killed >= KILLS // 2
    assert PriceCorrection.objects.filter(price__version__plan__name="storm").count() == KILLS - 2
    assert cut("storm") == cut("calm")
    prove()


def two_alike(dice: random.Random) -> None:
    a_seller()
    times = [(day, dice.randrange(1, 20)) for day in range(1, 29)]
    for name in ("calm", "storm"):
        plan = a_plan(name, prices=[("gpu-hour", {}, "2", LONG_AGO)])
        cluster = a_cluster(name, complete_through="2024-12-31")
        for number in range(TENANTS):
            a_tenant(
                f"{name}-{number}",
                plan=plan,
                plan_from=date(2024, 3, 1),
                accounts=[(cluster, f"acc{number}")],
            )
        ingest(
            cluster,
            *(
                a_job(
                    job_id=str(job),
                    account=f"acc{job % TENANTS}",
                    gpus=1 + job % 3,
                    started=f"2024-03-{day:02d} {hour:02d}:00",
                    ended=f"2024-03-{day + 1:02d} {hour:02d}:30",
                )
                for job in range(JOBS)
                for day, hour in [times[job % len(times)]]
            ),
        )


def written(path: Path, plan: str, amount: str) -> Path:
    path.write_text(FILE.format(plan=plan, since=LONG_AGO, amount=amount))
    return path


@transaction.atomic
def move_border(day: date) -> None:
    """The newest price of each plan ends on that day, and another begins."""
    for name in ("calm", "storm"):
        version = plans.set_plan(name=name, currency="USD").versions.get()
        newest = version.prices.latest("valid_from")
        plans.end_price(price=newest, on=day)
        plans.set_price(
            version=version, meter="gpu-hour", where={}, model=PerUnit(Decimal("3.01")), valid_from=day
        )


def close(op: Operator, month: int) -> None:
    op.does("close_period", f"2024-{month:02d}", "--as-of", f"2024-{month + 1:02d}-03")


@transaction.atomic
def rate(name: str) -> None:
    tenants = Tenant.objects.filter(slug__startswith=f"{name}-").order_by("pk")
    outbox.add("billing.tasks.rate_tenants", tenant_ids=list(tenants.values_list("pk", flat=True)))


def rated(name: str) -> object:
    """Where each rated row lies and who wrote it."""
    return _of_rows(name, "md5(string_agg(concat(r.id, r.tableoid, r.ctid, r.xmin), ',' ORDER BY r.id))")


def cut(name: str) -> object:
    """What each run holds, by the price and the second at which it does."""
    return _of_rows(
        name,
        "array_agg(concat_ws(' ', u.source_key, r.service_from, r.service_to, p.unit_price, r.units, r.reversal)"
        " ORDER BY u.source_key, r.service_from, r.reversal, p.unit_price, r.units)",
    )


def _of_rows(name: str, what: str) -> object:
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {what} FROM billing_ratedusage r JOIN clusters_usagerecord u ON u.id = r.record_id"
            " JOIN clusters_cluster c ON c.id = u.cluster_id JOIN billing_price p ON p.id = r.price_id"
            " WHERE c.name = %s",
            [name],
        )
        return cursor.fetchone()[0]


def billed(name: str) -> list[tuple[str, str, int]]:
    lines = InvoiceLine.objects.filter(tenant__slug__startswith=f"{name}-", invoice__state="issued")
    sums = lines.values_list("tenant__slug", "invoice__period__start", "description").annotate(
        sum=Sum("amount")
    )
    return sorted(
        (slug.removeprefix(name), f"{start:%Y-%m} {description}", amount)
        for slug, start, description, amount in sums
    )
