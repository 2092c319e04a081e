"""What the running period will come to, as the overview says it. Case 38 of the API."""

from __future__ import annotations

import pytest

from clusters.models import Cluster
from portal.core.tenants.models import User
from tests import builders
from tests.api.door import Door, door
from tests.paying import pays
from tests.terms import TWO_DOLLARS, a_version
from tests.web.clock import stand_at
from tests.web.house import House, page
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db

CLOCKS = ("portal.web.access_decorators", "portal.api.views")


def dollars(amount: str) -> dict[str, str]:
    return {"amount": amount, "currency": "USD"}


@pytest.fixture
def lab() -> tuple[Cluster, User, Door]:
    cluster = builders.a_cluster()
    vision = builders.a_tenant(plan=a_version(TWO_DOLLARS).plan, accounts=[(cluster, "vision")])
    ann = builders.a_person(tenant=vision)
    return cluster, ann, door(ann, vision)


def used_daily(cluster: Cluster, *days: int, as_of: str, account: str = "vision") -> None:
    """Ten GPUs for an hour on these days of March, 20.00 each."""
    jobs = (
        builders.a_job(
            account=account, gpus=10, started=f"2026-03-{n:02} 10:00", ended=f"2026-03-{n:02} 11:00"
        )
        for n in days
    )
    builders.ingest(cluster, *jobs, as_of=as_of)


def test_api_038_the_forecast_is_the_figure_of_the_overview(
    lab: tuple[Cluster, User, Door], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, ann, script = lab
    used_daily(cluster, *range(1, 15), as_of="2026-03-15")
    for clock in CLOCKS:
        stand_at(monkeypatch, "2026-03-15 10:00", of=clock)
    answer = script.reads("/forecast")
    assert answer == {
        "period": {"from": "2026-03-01T00:00:00Z", "to": "2026-04-01T00:00:00Z", "timezone": "UTC"},
        "complete_through": "2026-03-15T00:00:00Z",
        "spend": [dollars("280.00")],
        "expected": dollars("620.00"),
        "low": dollars("620.00"),
        "high": dollars("620.00"),
        "paid_for_others": dollars("0.00"),
        "whole_days": 7,
        "reason": None,
    }
    assert "about $620.00 Likely range from $620.00 to $620.00." in words(page(ann, "/t/vision-lab/"))
    budget = {"measure": "money", "amount": "1000", "every": "month"}
    assert script.send("PUT", "/quotas/all", budget).body["forecast"] == "620.00"


def test_api_038_others_use_that_the_tenant_pays_is_in_the_forecast(
    lab: tuple[Cluster, User, Door], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, ann, _ = lab
    physics = builders.a_tenant("physics", plan=a_version(TWO_DOLLARS, name="physics").plan)
    pays(physics, ann.memberships.get().tenant, "2026-03-01")
    dean = builders.a_person("dean@physics.example", physics)
    used_daily(cluster, *range(1, 15), as_of="2026-03-15")
    stand_at(monkeypatch, "2026-03-15 10:00", of="portal.api.views")
    answer = door(dean, physics).reads("/forecast")
    assert answer["spend"] == [dollars("280.00")]
    assert (answer["expected"], answer["paid_for_others"]) == (dollars("620.00"), dollars("620.00"))


def test_api_038_what_is_too_early_to_forecast_says_why(
    lab: tuple[Cluster, User, Door], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, _, script = lab
    stand_at(monkeypatch, "2026-03-03 10:00", of="portal.api.views")
    assert script.reads("/forecast")["reason"] == "no-period"
    used_daily(cluster, 1, 2, as_of="2026-03-03")
    early = script.reads("/forecast")
    assert (early["expected"], early["whole_days"], early["reason"]) == (None, 2, "too-few-days")
    assert early["spend"] == [dollars("40.00")]
    used_daily(cluster, 3, as_of="2026-03-04")
    stand_at(monkeypatch, "2026-03-04 10:00", of="portal.api.views")
    three = script.reads("/forecast")
    assert (three["expected"], three["low"], three["high"]) == (dollars("620.00"), None, None)


def test_api_038_a_key_of_a_project_and_an_operator_without_a_tenant_get_none(house: House, op: Door) -> None:
    project = house.vision.projects.get(name="vision")
    refused = door(house.ann, house.vision, project=project).get("/forecast")
    assert refused.problem == (403, "one-project")
    assert op.get("/forecast").problem == (400, "invalid-request")
    assert op.reads("/forecast?tenant=vision-lab")["reason"] in {"no-period", "never-read"}
