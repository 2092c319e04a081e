"""Before a change of plan, Ann sees what her last month would have cost by the other plan, beside what it did cost."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.catalog import plans
from billing.models import Plan, Price, RatedUsage, Subscription
from billing.rules.meters import PerUnit
from billing.sign_up import last_period
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import acting_scope
from tests import builders
from tests.api.door import door
from tests.web.clock import stand_at
from tests.web.house import House, signed_in
from tests.web.sign_up_stories import offer_plans

pytestmark = pytest.mark.django_db

CHANGE = "/t/vision-lab/plan/change/?plan=starter"
TODAY = "2026-04-20 12:00"


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_at(monkeypatch, TODAY)
    stand_at(monkeypatch, TODAY, of="portal.api.views")


def figures(text: str) -> list[str]:
    """What stands beside *It cost*, *It would have cost* and *Difference*."""
    return re.findall(r"<dd>([^<]*)</dd>", text.split("Your last period")[1])[:3]


def test_the_preview_prices_the_last_month_by_the_other_plan(house: House) -> None:
    offer_plans(house)
    starter = Plan.objects.get(name="starter").versions.get()
    plans.set_price(  # which Eve alone would pay
        version=starter,
        meter="gpu-hour",
        where={},
        model=PerUnit(Decimal(90)),
        valid_from=builders.LONG_AGO,
        tenant=house.speech,
    )
    before = RatedUsage.objects.count()
    text = signed_in(house.ann).get(CHANGE).text
    assert "Your last period, March 2026" in text
    assert figures(text) == ["$13.00", "$9.75", "−$3.25"]  # 6.5 GPU-hours, at 2.00 and 1.50
    assert "$90.00" not in text
    ann = door(house.ann, house.vision, moment=builders.at("2026-04-01"))
    last = ann.reads("/plan-choices/starter")["last_period"]
    assert (last["present_cost"], last["offered_cost"]) == (
        [{"amount": "13.00", "currency": "USD"}],
        [{"amount": "9.75", "currency": "USD"}],
    )
    assert (RatedUsage.objects.count(), Subscription.objects.count()) == (before, 2)


def test_a_tenant_reads_no_record_of_another_one(house: House) -> None:
    def rows(tenant: Tenant) -> list[str]:
        with acting_scope(tenant), connection.cursor() as cursor:
            cursor.execute("SELECT job_id FROM billing_ownusage ORDER BY job_id")
            return [job for (job,) in cursor.fetchall()]

    assert rows(house.vision) == ["17", "18"]
    assert rows(house.speech) == ["19"]
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM billing_ownusage")  # in nobody's name
        assert cursor.fetchone() == (0,)


def test_where_nothing_can_be_compared_the_preview_says_why(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer_plans(house)
    deal = builders.a_plan("deal", "USD")

    def reason() -> str:
        return signed_in(house.ann).get(CHANGE).text.split("Your last period")[1].split("</p>")[0]

    monkeypatch.setattr(last_period, "MOST", 1)
    assert "More than 1 jobs ran in it" in reason()
    monkeypatch.setattr(last_period, "MOST", 2)
    assert "$13.00" in reason()
    Price.objects.filter(version__plan__name="starter").update(gpu_models=["h100"], selector="gpu_model=h100")
    assert "Plan starter had no price then for what you used: a100." in reason()
    Subscription.objects.filter(tenant=house.vision).update(since=builders.at("2026-03-20"))
    Subscription.objects.create(
        tenant=house.vision, plan=deal, since=builders.at("2026-01-01"), until=builders.at("2026-03-20")
    )
    assert "on a plan that was agreed with the operator" in reason()
    stand_at(monkeypatch, "2026-06-10 12:00")
    assert "You used nothing in it." in reason()


def test_the_preview_asks_the_database_as_often_for_many_jobs(house: House) -> None:
    offer_plans(house)

    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert signed_in(house.ann).get(CHANGE).status_code == 200
        return len(queries)

    few = count()
    times = {"started": "2026-03-05 10:00", "ended": "2026-03-05 11:00"}
    builders.ingest(house.cluster, *(builders.a_job(job_id=f"7{nth}", **times) for nth in range(30)))
    assert count() == few
