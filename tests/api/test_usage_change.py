"""Why spending changed, as scripts and assistants read it: the reasons of the page."""

from __future__ import annotations

from contextlib import closing
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection

from billing.catalog import version_terms
from billing.models import PlanVersion
from portal.core.locks import Work
from portal.core.tenants.models import Role
from tests import builders
from tests.api.door import Door, door
from tests.web.house import House

pytestmark = pytest.mark.django_db

RANGES = "earlier_from=2026-02-01&earlier_to=2026-03-01&from=2026-03-01&to=2026-04-01"


def test_the_reasons_add_up_to_the_difference(house: House, ann: Door) -> None:
    answer = ann.reads(f"/usage/change?{RANGES}&group_by=user,gpu_model")
    (dollars,) = answer["by_currency"]
    assert answer["timezone"] == house.vision.timezone
    amounts = [Decimal(part["amount"]["amount"]) for part in dollars["parts"]]
    assert sum(amounts) == Decimal(dollars["difference"]["amount"]) > 0
    assert Decimal(dollars["later"]["amount"]) * 100 == house.invoice.subtotal
    assert dollars["parts"][0] == {
        "part": "runs",
        "group": {"user": "ben", "gpu_model": "a100"},
        "meter": "gpu",
        "unit": "GPU-hour",
        "earlier": "0",
        "later": "6",
        "amount": {"amount": "12.00", "currency": "USD"},
        "runs": {"earlier": 0, "later": 1},
        "array": None,
        "price_since": None,
    }


def test_runs_are_counted_up_to_a_number_and_more_where_that_is_asked_for(
    house: House, ann: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("portal.api.resources.usage_change.MOST_RUNS", 1)
    (few,) = ann.reads(f"/usage/change?{RANGES}")["by_currency"]
    with closing(connection.copy()) as other, other.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", [Work.COUNTING_RUNS, house.vision.pk])
        refused = ann.get(f"/usage/change?{RANGES}&all_runs=true")
    assert refused.status == 409
    assert "being counted already: ask again" in refused.body["detail"]
    (every,) = ann.reads(f"/usage/change?{RANGES}&all_runs=true")["by_currency"]
    assert (few["runs_counted"], {part["part"] for part in few["parts"]}) == (False, {"volume"})
    assert (every["runs_counted"], {part["part"] for part in every["parts"]}) == (True, {"runs"})
    assert few["difference"] == every["difference"]


def test_fees_are_for_keys_that_read_invoices(house: House) -> None:
    for version in PlanVersion.objects.filter(plan__subscriptions__tenant=house.vision):
        version_terms.set_fee(
            version=version,
            name="Base fee",
            amount=Decimal(100),
            in_advance=False,
            tenant=house.vision,
            valid_from=date(2026, 4, 1),
        )
    builders.ingest(house.cluster, builders.a_job(started="2026-04-02 10:00", ended="2026-04-02 11:00"))
    april = "earlier_from=2026-02-01&earlier_to=2026-03-01&from=2026-04-01&to=2026-05-01"

    def others(one: Door) -> list[Any]:
        (dollars,) = one.reads(f"/usage/change?{april}")["by_currency"]
        return [row["later"]["amount"] for row in dollars["others"]]

    assert others(door(house.ann, house.vision)) == ["100.00"]
    assert others(door(house.ann, house.vision, "usage:read")) == []
    assert others(door(house.ben, house.vision)) == []


def test_what_is_asked_wrongly_is_said(house: House, ann: Door) -> None:
    for query, parameter in (
        (RANGES.replace("to=2026-04-01", "to=2026-03-01"), "from"),
        (RANGES.replace("earlier_from=2026-02-01", "earlier_from=1999-02-01"), "earlier_to"),
        (f"{RANGES}&group_by=user,queue,qos", "group_by"),
    ):
        refused = ann.get(f"/usage/change?{query}")
        assert refused.problem == (400, "invalid-request")
        assert parameter in refused.body["detail"]
    eve = door(builders.a_person("e@speech.example", house.speech, Role.OWNER), house.speech)
    assert eve.get(f"/usage/change?{RANGES}&tenant=vision-lab").status == 404
