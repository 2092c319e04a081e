"""What is asked of a tenant that has a price, hours, a fee, a commitment and a discount of its own: quotes, reasons."""

from __future__ import annotations

import io
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from billing.catalog import plans, version_terms
from billing.models import PlanVersion
from billing.rules.meters import PerUnit
from billing.simulation import what_if
from billing.simulation.quotes import quote
from clusters.models import Cluster
from portal.config_file import drafts
from portal.config_file.export import plan_text
from portal.config_file.schema import parse
from portal.core.tenants.models import Role, Tenant
from tests.builders import LONG_AGO, a_job, a_person, at
from tests.on_terms import MARCH, a_lab, billed, used
from tests.scenarios.real import run
from tests.scenarios.test_terms_of_one_tenant import agrees
from tests.stories import closed, invoice_of, prove
from tests.terms import TWO_DOLLARS, a_version
from tests.web.house import page
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db

NOW = at("2026-03-25")


@pytest.fixture
def version() -> PlanVersion:
    """2.00 an hour, of which 100 hours are included, a fee of 50.00, 1,000.00 at least, 50 % off."""
    version = a_version(TWO_DOLLARS, allowance="100")
    version_terms.set_fee(version=version, name="Base fee", amount=Decimal(50), in_advance=False)
    version_terms.set_commitment(version=version, amount=Decimal(1000))
    version_terms.set_discount(version=version, name="Offer", valid_from=LONG_AGO, percent=Decimal(50))
    return version


@pytest.fixture
def cluster(version: PlanVersion) -> Cluster:
    """The vision lab has used 8 hours of its own 10, and pays 1.50, no fee and no commitment, less 10 %."""
    cluster, vision = a_lab(version)
    own: dict[str, Any] = {"version": version, "tenant": vision, "valid_from": MARCH}
    allowance = version_terms.set_allowance(name="Included hours", hours=Decimal(10), **own)
    plans.set_price(
        meter="gpu-hour",
        where={},
        model=PerUnit(Decimal("1.50")),
        allowance=version_terms.allowance_of(version, allowance.name),
        **own,
    )
    version_terms.set_fee(name="Base fee", amount=Decimal(0), **own)
    version_terms.set_commitment(amount=Decimal(0), **own)
    version_terms.set_discount(name="Offer", percent=Decimal(10), **own)
    used(cluster, 8)
    return cluster


def test_a_quote_is_by_the_tenants_own_price_hours_commitment_and_discount(cluster: Cluster) -> None:
    vision = Tenant.objects.get()
    job = a_job(gpus=12, started="2026-03-26 10:00", ended="2026-03-26 11:00")

    estimate = quote(tenant=vision, cluster="gpu1", job=job, now=NOW)

    (part,) = estimate.parts
    assert (part.price.unit_price, part.amount.text) == (Decimal("1.50"), "15.00")  # 2 hours are left
    assert [(name, amount.text) for name, amount in estimate.terms] == [("Offer", "-1.50")]
    assert [amount.text for amount in estimate.total] == ["13.50"]


def test_where_its_own_price_ends_a_quote_goes_on_by_the_plans(
    cluster: Cluster, version: PlanVersion
) -> None:
    own = version.prices.get(tenant__isnull=False)
    plans.end_price(price=own, on=date(2026, 3, 27))
    used(cluster, 2)  # the last of the included hours

    estimate = quote(
        tenant=Tenant.objects.get(),
        cluster="gpu1",
        job=a_job(gpus=1, started="2026-03-26 22:00", ended="2026-03-27 03:00"),
        now=NOW,
    )

    assert {part.price.unit_price: part.amount.text for part in estimate.parts} == {
        Decimal("1.50"): "3.00",
        Decimal("2.00"): "6.00",
    }
    assert [amount.text for amount in estimate.total] == ["8.10"]  # less 10 %


def test_the_page_and_the_command_say_the_same(cluster: Cluster) -> None:
    ben = a_person("ben@vision.example", Tenant.objects.get(), Role.MEMBER)
    text = words(page(ben, "/t/vision-lab/quote/?gpus=12&hours=1&at=2026-03-26T10:00"))
    assert "Estimated cost (before tax) $13.50" in text
    assert "Offer changes with this job -$1.50" in text
    estimate = run(
        *("quote", "vision-lab", "--cluster", "gpu1", "--gpus", "12", "--hours", "1"), *("--at", "2026-03-26")
    )
    assert estimate["total"] == {"USD": "13.50"}
    assert [line["price"]["unit_price"] for line in estimate["lines"]] == ["1.5"]


def test_an_invoice_says_whose_price_it_was_and_is_computed_again(cluster: Cluster, tmp_path: Path) -> None:
    vision = Tenant.objects.get()
    used(cluster, 12, day="2026-03-26")
    closed("2026-03", vision)

    assert billed(vision, "2026-03") == [
        ("2026-03", "GPU time", "15.00"),  # 20 hours less 10, at 1.50
        ("2026-03", "Offer", "-1.50"),
    ]
    out = io.StringIO()
    call_command("explain_invoice", str(invoice_of(vision, "2026-03").number), stdout=out)
    output = out.getvalue()
    assert "20 GPU-hours of all projects less 10 included, at $1.50 = $15.00" in output
    assert "price for tenant=vision-lab from 2026-03-01" in output
    assert "10 % off $15.00 = -$1.50" in output
    agrees(vision, "2026-03", tmp_path)
    prove()


def test_a_plan_that_is_tried_with_all_that_it_says_to_the_tenant_changes_nothing(
    cluster: Cluster, version: PlanVersion
) -> None:
    vision = Tenant.objects.get()
    closed("2026-03", vision)
    text = plan_text(version)
    assert text.count('tenant = "vision-lab"') == 5

    (same,) = what_if.simulate_plan(
        tenants=[vision],
        months=((2026, 3), (2026, 3)),
        draft=lambda name: drafts.write(parse(text).plans, name),
    )

    assert [(row.line, row.now, row.tried) for row in same.rows if row.now != row.tried] == []
    dearer = text.replace('unit_price = "1.5"', 'unit_price = "3"')
    assert dearer != text
    used(cluster, 12, day="2026-03-26")
    (tried,) = what_if.simulate_plan(
        tenants=[vision],
        months=((2026, 3), (2026, 3)),
        draft=lambda name: drafts.write(parse(dearer).plans, name),
    )
    assert ([amount.text for amount in tried.now], [amount.text for amount in tried.tried]) == (
        ["13.50"],
        ["27.00"],
    )
