"""A border that moves re-cuts the runs that it meets; of all others no rated row, day or job is written."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal

import pytest
from django.db import connection

from billing.catalog import plans, version_terms
from billing.models import PlanVersion, RatedJob
from billing.rating import engine
from billing.rules import hours as clock
from billing.rules.meters import PerUnit
from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from tests.builders import a_job, ingest
from tests.on_terms import a_lab
from tests.stories import closed, prove
from tests.terms import TWO_DOLLARS, a_version

pytestmark = pytest.mark.django_db

MIDDLE = date(2026, 3, 16)
WINDOW = clock.of_terms({"zone": "tenant", "windows": [{"days": "mon-sun", "from": "22:00", "to": "06:00"}]})

RUNS = {
    "before": ("2026-03-10 10:00", "2026-03-10 20:00"),
    "over": ("2026-03-15 12:00", "2026-03-16 12:00"),
    "after": ("2026-03-20 10:00", "2026-03-20 20:00"),
    "in April": ("2026-04-02 10:00", "2026-04-02 20:00"),
    "by night": ("2026-03-11 20:00", "2026-03-12 02:00"),
}


@pytest.fixture
def version() -> PlanVersion:
    return a_version(TWO_DOLLARS)


@pytest.fixture
def lab(version: PlanVersion) -> tuple[Cluster, Tenant]:
    cluster, tenant = a_lab(version)
    ingest(
        cluster,
        *(
            a_job(
                job_id=name,
                account="vision",
                gpus=2,
                started=since,
                ended=until,
                queue=name.replace(" ", "-"),
            )
            for name, (since, until) in RUNS.items()
        ),
    )
    closed("2026-03", tenant)
    return cluster, tenant


def written() -> dict[str, dict[str, list[str]]]:
    """By table and run the rows of it as they lie there, with who wrote each."""
    tables: dict[str, dict[str, list[str]]] = {}
    with connection.cursor() as cursor:
        for table in ("billing_ratedusage", "billing_ratedjob"):
            cursor.execute(
                "SELECT j.job_id, array_agg(concat_ws(' ', r.tableoid, r.ctid, r.xmin) ORDER BY r.ctid)"
                f" FROM {table} r JOIN billing_ratedjob j USING (record_id, tenant_id) GROUP BY 1"
            )
            tables[table] = dict(cursor.fetchall())
    return tables


def changed(before: dict[str, dict[str, list[str]]]) -> set[str]:
    """The runs of which any row is another, or one more, now."""
    return {
        name
        for table, runs in written().items()
        for name, rows in runs.items()
        if rows != before[table][name]
    }


def end_in_the_middle(version: PlanVersion) -> None:
    plans.end_price(price=version.prices.get(), on=MIDDLE)
    plans.set_price(version=version, meter="gpu-hour", where={}, model=PerUnit(Decimal(3)), valid_from=MIDDLE)


def one_queue(version: PlanVersion) -> None:
    plans.set_price(
        version=version,
        meter="gpu-hour",
        where={"queue": ["after"]},
        model=PerUnit(Decimal(3)),
        valid_from=version.effective_from,
    )


def nights(version: PlanVersion) -> None:
    plans.set_price(
        version=version,
        meter="gpu-hour",
        where={},
        model=PerUnit(Decimal(1)),
        valid_from=version.effective_from,
        hours=WINDOW,
    )


def a_later_version(version: PlanVersion) -> None:
    april = plans.new_version(plan=version.plan, effective_from=date(2026, 4, 1), charges=["gpu"])
    plans.set_price(
        version=april, meter="gpu-hour", where={}, model=PerUnit(Decimal(3)), valid_from=date(2026, 4, 1)
    )


def an_amount(version: PlanVersion) -> None:
    plans.correct_price(price=version.prices.get(), model=PerUnit(Decimal(3)), reason="agreed")


def a_fee(version: PlanVersion) -> None:
    later = plans.new_version(plan=version.plan, effective_from=date(2026, 7, 1), charges=["gpu"])
    version_terms.set_fee(version=later, name="Access", amount=Decimal(10))


@pytest.mark.parametrize(
    ("change", "met"),
    [
        (end_in_the_middle, {"over", "after", "in April"}),
        (one_queue, {"after"}),
        (nights, {"over", "by night"}),
        (a_later_version, {"in April"}),
        (an_amount, set()),
        (a_fee, set()),
    ],
)
def test_only_the_runs_that_a_border_meets_are_cut_again(
    version: PlanVersion,
    lab: tuple[Cluster, Tenant],
    change: Callable[[PlanVersion], None],
    met: set[str],
) -> None:
    tenant = lab[1]
    before = written()
    change(version)
    engine.rate_tenants([tenant])
    assert changed(before) == met
    assert RatedJob.objects.count() == len(RUNS)
    prove()
    again = written()
    engine.rate_tenants([tenant])
    assert written() == again
    closed("2026-04", tenant)
    prove()
