"""What the overview of a payer says is to come: its own use and that of whom it pays for, as its invoice will."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.catalog import version_terms
from billing.models import PlanVersion
from clusters.models import Cluster
from portal.core.tenants.models import Tenant, User
from tests import builders, stories
from tests.paying import pays
from tests.terms import TWO_DOLLARS, a_version
from tests.web.clock import stand_at
from tests.web.house import page, signed_in
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db

PAYS = "/t/physics/"


@pytest.fixture
def version() -> PlanVersion:
    return a_version(TWO_DOLLARS)


@pytest.fixture
def cluster(version: PlanVersion) -> Cluster:
    """Physics pays for the vision lab since April; both are on the plan, and own an account."""
    cluster = builders.a_cluster()
    physics = builders.a_tenant("physics", name="Physics", plan=version.plan, accounts=[(cluster, "physics")])
    vision = builders.a_tenant(plan=version.plan, accounts=[(cluster, "vision")])
    pays(physics, vision, "2026-04-01")
    return cluster


@pytest.fixture
def dean(cluster: Cluster) -> User:
    return builders.a_person("dean@physics.example", Tenant.objects.get(slug="physics"))


def used_daily(cluster: Cluster, account: str, gpus: int, days: range, *, as_of: str) -> None:
    """So many GPUs for an hour on these days of April."""
    jobs = (
        builders.a_job(
            account=account, gpus=gpus, started=f"2026-04-{n:02} 10:00", ended=f"2026-04-{n:02} 11:00"
        )
        for n in days
    )
    builders.ingest(cluster, *jobs, as_of=as_of)


def test_what_it_pays_for_others_is_in_what_has_accrued_and_in_the_forecast_as_the_invoice_will_say(
    cluster: Cluster, dean: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = range(1, 15)
    used_daily(cluster, "physics", 5, half, as_of="2026-04-15")
    used_daily(cluster, "vision", 10, half, as_of="2026-04-15")
    stand_at(monkeypatch, "2026-04-15 10:00")

    text = words(page(dean, PAYS))

    assert "Spend to date $420.00 invoice preview, $280.00 of it for others" in text
    assert "Forecast to 30 Apr 2026 about $900.00 Own use $300.00, Paid for others $600.00." in text
    assert "Likely range from $900.00 to $900.00." in text
    assert "14 Apr 2026 $420.00 30 Apr 2026, expected $900.00" in text
    assert "Used by Vision Lab $280.00 Before tax $420.00" in text

    rest = range(15, 31)
    used_daily(cluster, "physics", 5, rest, as_of="2026-05-01")
    used_daily(cluster, "vision", 10, rest, as_of="2026-05-03")
    stories.closed("2026-04", Tenant.objects.get(slug="physics"), on="2026-05-03")
    assert stories.total(stories.invoice_of(Tenant.objects.get(slug="physics"), "2026-04")) == "900.00"


def test_a_payer_that_uses_nothing_itself_is_told_what_comes_all_the_same(
    cluster: Cluster, dean: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    Tenant.objects.get(slug="physics").ownerships.all().delete()
    used_daily(cluster, "vision", 10, range(1, 15), as_of="2026-04-15")
    stand_at(monkeypatch, "2026-04-15 10:00")
    text = words(page(dean, PAYS))
    assert "Spend to date $280.00" in text
    assert "about $600.00 Own use $0.00, Paid for others $600.00." in text


def test_it_is_told_until_it_pays_no_longer_and_with_the_terms_of_the_others_plan(
    cluster: Cluster, dean: User, version: PlanVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the 21st: 20 of 30 days, of a fee of 300.00, and at 20.00 a day."""
    vision = Tenant.objects.get(slug="vision-lab")
    version_terms.set_fee(
        version=version, name="Racks", amount=Decimal(300), in_advance=False, tenant=vision,
        valid_from=date(2026, 4, 1),
    )  # fmt: skip
    pays(Tenant.objects.get(slug="physics"), vision, "2026-04-01", "2026-04-21")
    used_daily(cluster, "vision", 10, range(1, 15), as_of="2026-04-15")
    stand_at(monkeypatch, "2026-04-15 10:00")
    text = words(page(dean, PAYS))
    assert "Spend to date $480.00" in text
    assert "about $600.00 Own use $0.00, Paid for others $600.00." in text  # 200.00 and 20 × 20.00


def test_too_few_days_of_the_other_are_in_it_as_they_stand(
    cluster: Cluster, dean: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    used_daily(cluster, "physics", 5, range(1, 15), as_of="2026-04-15")
    used_daily(cluster, "vision", 10, range(13, 15), as_of="2026-04-15")
    stand_at(monkeypatch, "2026-04-15 10:00")
    text = words(page(dean, PAYS))
    assert "about $340.00 Own use $300.00, Paid for others $40.00." in text
    assert "Tenants with too few whole days of usage are included with their charges so far." in text


def test_as_many_queries_for_twelve_as_for_two(
    cluster: Cluster, dean: User, version: PlanVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_at(monkeypatch, "2026-04-15 10:00")

    def query_count(labs: range) -> int:
        for n in labs:
            child = builders.a_tenant(f"lab-{n}", plan=version.plan, accounts=[(cluster, f"lab-{n}")])
            pays(Tenant.objects.get(slug="physics"), child, "2026-04-01")
            used_daily(cluster, f"lab-{n}", 1, range(1, 15), as_of="2026-04-15")
        client = signed_in(dean)
        with CaptureQueriesContext(connection) as asking:
            assert "Paid for others" in client.get(PAYS).text
        return len(asking)

    query_count(range(1))
    few = query_count(range(1, 2))
    assert query_count(range(2, 12)) == few


def test_a_forecast_of_the_last_day_says_that_one_day_is_left(
    cluster: Cluster, dean: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    used_daily(cluster, "physics", 1, range(1, 30), as_of="2026-04-30 00:00")
    stand_at(monkeypatch, "2026-04-30 00:00")
    assert "continued for the 1 day left and priced" in page(dean, PAYS)
