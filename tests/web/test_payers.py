"""What the two sides see where one tenant pays for another: names, sums and projects, but nobody else's jobs."""

from __future__ import annotations

from datetime import date

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.catalog import third_party_payers
from billing.models import BillingPeriod, DayTotal, Payer, PeriodTotal, RatedJob, RatedUsage
from portal.core.tenants.models import Project, Role, Tenant, User
from portal.core.tenants.scope import tenant_scope
from tests import builders, stories
from tests.paying import pays
from tests.web.clock import stand_at
from tests.web.house import House, a_house, page, signed_in

pytestmark = pytest.mark.django_db

PAYS = "/t/physics/"


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> House:
    """The faculty of physics pays for the vision lab since April; both used something then."""
    house = a_house()
    house.cluster.complete_through = builders.at("2026-07-01")
    house.cluster.save()
    physics = builders.a_tenant(
        "physics", name="Faculty of Physics", plan=house.vision.subscriptions.get().plan
    )
    pays(physics, house.vision, "2026-04-01")
    builders.ingest(
        house.cluster,
        builders.a_job(job_id="secret-77", started="2026-04-10 10:00", ended="2026-04-10 13:00"),
    )
    stand_at(monkeypatch, "2026-04-20 12:00")
    return house


@pytest.fixture
def dean(house: House) -> User:
    return builders.a_person("dean@physics.example", Tenant.objects.get(slug="physics"), Role.OWNER)


def test_each_side_says_who_pays_since_when_and_how_much(house: House, dean: User) -> None:
    lab = page(house.ann, "/t/vision-lab/")
    faculty = page(dean, PAYS)

    assert "Paid by Faculty of Physics since 1 Apr 2026." in lab
    assert "$6.00" in lab
    assert "-$6.00" in lab  # which its own invoice will not say
    assert "Pays for Vision Lab since 1 Apr 2026." in faculty
    assert "Paid for others" in faculty
    assert "$6.00" in faculty
    assert "Physics" not in page(house.eve, "/t/speech-lab/")


def test_the_payers_invoice_names_the_tenant_and_tells_none_of_its_jobs(house: House, dean: User) -> None:
    stories.close("2026-04")
    number = stories.invoice_of(Tenant.objects.get(slug="physics"), "2026-04").number

    invoice = page(dean, f"{PAYS}invoices/{number}/")
    assert "Vision Lab: vision" in invoice
    assert "0 jobs" not in invoice
    line = page(dean, f"{PAYS}invoices/{number}/lines/1/")
    assert "Another tenant used it: its jobs are on that one’s pages, for its own members." in line
    assert "10,800 GPU-seconds ÷ 3,600 × $2.00 = $6.00" in line
    for path in ("csv", "lines/1/csv"):
        rows = page(dean, f"{PAYS}invoices/{number}/{path}")
        assert "Vision Lab: vision,,,,,,,," in rows
        assert "3.000000000,GPU-hour,2,USD,6.00,usage" in rows
        assert "secret-77" not in rows
    record = house.record("secret-77")
    assert signed_in(dean).get(f"{PAYS}jobs/{record}/").status_code == 404
    assert signed_in(dean).get(f"/t/vision-lab/jobs/{record}/").status_code == 404
    assert signed_in(house.ann).get(f"/t/vision-lab/invoices/{number}/").status_code == 404
    assert signed_in(house.eve).get(f"{PAYS}invoices/{number}/").status_code == 404
    assert "paid by Faculty of Physics" in page(house.ann, f"/t/vision-lab/jobs/{record}/")


def test_the_database_shows_the_payer_totals_and_projects_and_none_of_the_jobs(house: House) -> None:
    physics = Tenant.objects.get(slug="physics")
    with tenant_scope(physics):
        assert {row.tenant_id for row in PeriodTotal.objects.all()} == {house.vision.pk}
        assert {row.period.start for row in PeriodTotal.objects.select_related("period")} == {
            builders.at("2026-04-01")
        }
        assert set(Project.objects.values_list("name", flat=True)) == {"vision"}
        assert BillingPeriod.objects.filter(tenant=house.vision).exists()
        for table in (RatedUsage, RatedJob, DayTotal):
            assert not table.objects.exists()
        assert list(Tenant.objects.values_list("slug", flat=True)) == ["physics"]
    with tenant_scope(house.speech):
        assert not PeriodTotal.objects.exclude(tenant_id=house.speech.pk).exists()
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM billing_paying")
            assert cursor.fetchone() == (0,)
            cursor.execute("SELECT count(*) FROM billing_payer")
            assert cursor.fetchone() == (0,)


def test_whoever_stopped_paying_reads_no_project_and_no_period_that_came_after(house: House) -> None:
    physics = Tenant.objects.get(slug="physics")
    third_party_payers.end_payer(row=Payer.objects.get(), on=date(2026, 5, 1))
    builders.own(house.vision, house.cluster, "merger", project="Secret merger")
    for day, account in (("2026-05-10", "merger"), ("2026-06-10", "vision")):
        builders.ingest(
            house.cluster, builders.a_job(account=account, started=f"{day} 10:00", ended=f"{day} 13:00")
        )
    stories.close("2026-04")
    assert stories.total(stories.invoice_of(physics, "2026-04")) == "6.00"
    with tenant_scope(physics):
        assert set(Project.objects.values_list("name", flat=True)) == {"vision"}
        periods = BillingPeriod.objects.filter(tenant=house.vision).order_by("start")
        assert [f"{period.start:%Y-%m}" for period in periods] == ["2026-04"]
    with tenant_scope(house.vision):
        assert set(Project.objects.values_list("name", flat=True)) == {"vision", "Secret merger"}


def test_whoever_was_never_to_pay_reads_nothing(house: House) -> None:
    chemistry = builders.a_tenant("chemistry", plan=house.vision.subscriptions.get().plan)
    third_party_payers.end_payer(row=pays(chemistry, house.speech, "2026-05-01"), on=date(2026, 5, 1))
    builders.ingest(
        house.cluster, builders.a_job(account="speech", started="2026-05-10 10:00", ended="2026-05-10 13:00")
    )
    with tenant_scope(chemistry):
        assert not BillingPeriod.objects.exclude(tenant=chemistry).exists()
        assert not Project.objects.exclude(tenant=chemistry).exists()


@pytest.mark.peers  # takes long
def test_a_hundred_children_cost_no_more_queries_than_two(house: House, dean: User) -> None:
    physics = Tenant.objects.get(slug="physics")

    def query_count(month: str, children: range) -> tuple[int, int]:
        for n in children:
            child = builders.a_tenant(
                f"lab-{n}",
                plan=house.vision.subscriptions.get().plan,
                accounts=[(house.cluster, f"account-{n}")],
            )
            pays(physics, child, "2026-04-01")
        builders.ingest(
            house.cluster,
            *(
                builders.a_job(account=f"account-{n}", started=f"{month}-10 10:00", ended=f"{month}-10 11:00")
                for n in range(children.stop)
            ),
        )
        client = signed_in(dean)
        with CaptureQueriesContext(connection) as opening:
            assert client.get(PAYS).status_code == 200
        with CaptureQueriesContext(connection) as closing:
            stories.closed(month, physics)
        assert len(stories.lines_of(stories.invoice_of(physics, month))) >= len(children)
        return len(opening), len(closing)

    query_count("2026-04", range(2))
    few = query_count("2026-05", range(2, 4))
    assert query_count("2026-06", range(4, 104)) == few


def test_op_sets_who_pays_and_moves_its_end_in_the_administration(house: House) -> None:
    op = signed_in(house.op)
    form = {"tenant": house.speech.pk, "payer": house.vision.pk, "since": "2026-06-01", "until": ""}
    refused = op.post("/admin/billing/payer/add/", form, follow=True)
    assert "who pays for others has no payer" in refused.text

    form["payer"] = Tenant.objects.get(slug="physics").pk
    op.post("/admin/billing/payer/add/", form, follow=True)
    row = house.speech.payers.get()
    op.post(f"/admin/billing/payer/{row.pk}/change/", {"until": "2026-07-01"})
    row.refresh_from_db()
    assert row.until == date(2026, 7, 1)
    changed = op.get(f"/admin/tenants/tenant/{house.speech.pk}/change/").text
    assert "Faculty of Physics" in changed
