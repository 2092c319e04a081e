"""A price that Op gives to one tenant alone, for a time."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from billing.catalog import plans
from billing.catalog.plans import PlanError
from billing.models import Price
from billing.rules.meters import PerUnit
from tests.builders import LONG_AGO, a_cluster, a_job, a_tenant, ingest
from tests.configuring_terms import apply, refused
from tests.stories import closed, invoice_of, printed, prove
from tests.terms import TWO_DOLLARS, a_version

pytestmark = pytest.mark.django_db


def test_case_038_where_a_tenants_own_price_ends_the_plans_price_holds_from_that_instant() -> None:
    cluster = a_cluster(complete_through="2026-06-01")
    dear = (PerUnit(Decimal("9.00")), {"gpu_model": ["a100"], "queue": ["batch"]})
    version = a_version(TWO_DOLLARS, dear)
    vision = a_tenant(plan=version.plan, timezone="Europe/Berlin", accounts=[(cluster, "vision")])
    audio = a_tenant("audio-lab", plan=version.plan, accounts=[(cluster, "audio")])
    plans.set_price(
        version=version,
        meter="gpu-hour",
        where={},
        model=PerUnit(Decimal("1.50")),
        valid_from=LONG_AGO,
        valid_until=date(2026, 3, 16),
        tenant=vision,
    )
    across = {"started": "2026-03-15 20:00", "ended": "2026-03-16 02:00"}  # Berlin's midnight is at 23:00
    ingest(cluster, a_job(**across), a_job(account="audio", **across))
    ingest(cluster, a_job(queue="batch"), a_job(account="audio", queue="batch"))

    closed("2026-03", vision)
    closed("2026-03", audio)

    assert sorted(row[2:] for row in printed(invoice_of(vision, "2026-03"))) == [
        ("3", "6.00"),  # at the plan's price again
        ("4", "6.00"),  # three hours, and the one of the batch queue: its own price wins over any selectors
    ]
    assert sorted(row[2:] for row in printed(invoice_of(audio, "2026-03"))) == [("1", "9.00"), ("6", "12.00")]
    prove()


def test_two_prices_of_a_tenant_for_the_same_use_at_one_time_are_refused() -> None:
    version = a_version(TWO_DOLLARS)
    vision = a_tenant(plan=version.plan)
    arguments: dict[str, Any] = {
        "version": version,
        "meter": "gpu-hour",
        "where": {},
        "model": TWO_DOLLARS,
        "tenant": vision,
    }
    plans.set_price(valid_from=LONG_AGO, **arguments)
    with pytest.raises(PlanError, match="overlaps the price"):
        plans.set_price(valid_from=date(2026, 3, 1), **arguments)


SITE = """
[[plan]]
name = "standard"
currency = "EUR"
charges = ["gpu"]
from = 2026-01-01
[[plan.price]]
meter = "gpu-hour"
unit_price = "2.00"
[[plan.price]]
meter = "gpu-hour"
tenant = "vision-lab"
unit_price = "1.50"
until = 2026-07-01
[[tenant]]
slug = "vision-lab"
name = "Vision Lab"
plan = "standard"
plan_from = 2026-01-01
"""


def test_a_file_says_which_tenant_a_price_is_for() -> None:
    assert (
        "plan standard from 2026-01-01, price of gpu-hour tenant=vision-lab from 2026-01-01: "
        "new (unit price 1.5, until 2026-07-01, place 2)"
    ) in apply(SITE)
    assert apply(SITE) == ["Nothing to change."]
    assert Price.objects.filter(tenant__slug="vision-lab").count() == 1
    assert any(
        "tenant is 'nobody', which neither the file nor the database has." in error
        for error in refused(SITE.replace('tenant = "vision-lab"', 'tenant = "nobody"'))
    )
