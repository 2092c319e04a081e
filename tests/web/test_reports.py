"""Ann sees what came of her GPUs, Op what came of a cluster's, and Eve nothing of either."""

from __future__ import annotations

import csv
import re
from datetime import date
from decimal import Decimal

import pytest
from django.db import ProgrammingError, connection
from django.test import Client

from billing.models import OperatingCost
from billing.reports import operating_costs
from billing.reports.operating_costs import Cost
from billing.reports.reporting import of_tenant
from billing.reports.shapes import By
from clusters import capacity
from clusters.connectors.base import NodeSeen, NodeState
from clusters.models import UtilisationHour
from portal.core.tenants.scope import tenant_scope
from tests import builders
from tests.scenarios.reports import worked
from tests.web.house import House, a_house, page, signed_in

pytestmark = pytest.mark.django_db

MARCH = "?from=2026-03-01&through=2026-03-31"
ANNS, OPS = "/t/vision-lab/efficiency/", "/operator/reports/"


def a_busy_house() -> House:
    """Of the six hours of 17, four were covered and worked half; of Eve's hour all, and it worked a quarter."""
    house = a_house(close=False)
    worked("17", "2026-03-02 10:00", "3600", covered=7200)
    worked("17", "2026-03-02 11:00", "3600", covered=7200)
    worked("19", "2026-03-02 10:00", "900")
    builders.ingest(house.cluster, builders.a_job(job_id="20", account="whose", gpus=4), as_of="2026-04-20")
    return house


def cells(text: str, name: str) -> list[str]:
    """What stands in the row of that name, cell by cell."""
    row = next(row for row in text.split("<tr>") if f'ct-strong">{name}<' in row)
    bare = [re.sub(r"<[^>]*>", " ", cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)]
    return [" ".join(cell.split()) for cell in bare]


def test_ann_reads_what_came_of_her_gpus() -> None:
    house = a_busy_house()
    text = page(house.ann, ANNS + MARCH)
    assert cells(text, "vision") == [
        "vision", "6.50", "2.00", "2.00", "2.50", "50 %", "61.5 % measured on its GPUs", "2", "$4.00", "$13.00",
    ]  # fmt: skip
    assert cells(text, "Total")[1:5] == ["6.50", "2.00", "2.00", "2.50"]
    assert "Unknown = GPU-hours without telemetry; counted neither as effective nor as waste." in text
    assert "speech" not in text
    assert "whose" not in text


def test_op_reads_everybodys_use_and_what_nobody_owns() -> None:
    house = a_busy_house()
    text = page(house.op, OPS + MARCH)
    assert cells(text, "Vision Lab")[:5] == ["Vision Lab vision-lab", "6.50", "2.00", "2.00", "2.50"]
    assert cells(text, "Speech Lab")[1:] == [
        "1.00", "0.25", "0.75", "0.00", "25 %", "100 % measured on its GPUs", "1", "$0.94", "$1.25",
    ]  # fmt: skip
    assert cells(text, "(no tenant)")[:2] == ["(no tenant) Unassigned", "4.00"]
    assert cells(text, "(no tenant)")[-1] == "–"
    assert cells(text, "Total")[-1] == "$14.25"
    assert "The capacity in this period is unknown" in text


@pytest.mark.parametrize("by", [by for by in By if by is not By.TENANT])
def test_ann_chooses_what_it_is_told_by(by: By) -> None:
    house = a_busy_house()
    text = page(house.ann, f"{ANNS}{MARCH}&by={by}")
    assert "61.5 %" in text
    assert f'<option value="{by}" selected>' in text
    assert 'value="tenant"' not in text


def test_idle_and_down_gpus_stand_apart() -> None:
    house = a_busy_house()
    for day, state in (("2026-03-01", NodeState.UP), ("2026-03-21", NodeState.DOWN)):
        capacity.observe(
            house.cluster, [NodeSeen(name="n1", gpu_model="a100", gpus=8, state=state)], builders.at(day)
        )
    text = page(house.op, OPS + MARCH)
    assert cells(text, "a100") == ["a100", "11.50", "3,828.50", "0.00", "2,112.00", "5,952.00"]


def test_a_spreadsheet_gets_the_same_rows() -> None:
    house = a_busy_house()
    for person, path in (
        (house.ann, f"{ANNS}csv{MARCH}&by=project"),
        (house.op, f"{OPS}csv{MARCH}&by=project"),
    ):
        response = signed_in(person).get(path)
        assert response.headers["Content-Type"] == "text/csv; charset=utf-8"
        assert response.headers["Content-Disposition"].endswith('-project-2026-03-01-2026-03-31.csv"')
        rows = {row["project"]: row for row in csv.DictReader(response.content.decode().splitlines())}
        assert (rows["vision"]["gpu_hours_waste"], rows["vision"]["cost_allocated"]) == ("2", "13")
        assert ("speech" in rows) == (person == house.op)


def test_eve_gets_to_none_of_it() -> None:
    house = a_busy_house()
    eve = signed_in(house.eve)
    for path in (ANNS, f"{ANNS}csv", OPS, f"{OPS}csv"):
        assert eve.get(path + MARCH).status_code == 404
        assert Client().get(path).status_code == 302
    assert cells(page(house.eve, f"/t/speech-lab/efficiency/{MARCH}"), "speech")[1] == "1.00"


def test_beneath_the_filters_the_database_shows_eve_her_own_hours_alone() -> None:
    house = a_busy_house()
    with tenant_scope(house.speech), connection.cursor() as cursor:
        for view in ("billing_ownrun", "billing_ownhour"):
            cursor.execute(f"SELECT DISTINCT record_id FROM {view}")
            assert cursor.fetchall() == [(house.record("19"),)], view
        # Asked for another's use by name, she gets none.
        march = (int(builders.at("2026-03-01").timestamp()), int(builders.at("2026-04-01").timestamp()))
        assert of_tenant(house.vision, since=march[0], until=march[1], by=By.POD).rows == []
        cursor.execute("SELECT set_config('app.tenant_id', '', true)")
        cursor.execute(
            "SELECT (SELECT count(*) FROM billing_ownrun) + (SELECT count(*) FROM billing_ownhour)"
        )
        assert cursor.fetchone() == (0,)
    with pytest.raises(ProgrammingError, match="permission denied"), tenant_scope(house.speech):
        UtilisationHour.objects.first()


def test_eve_does_not_see_how_busy_a_job_was_before_it_was_hers() -> None:
    house = a_busy_house()
    shared = builders.a_job(
        job_id="30", account="shared", started="2026-03-05 10:00", ended="2026-03-05 14:00"
    )
    builders.ingest(house.cluster, shared)
    for hour in ("10:00", "11:00", "12:00", "13:00"):
        worked("30", f"2026-03-05 {hour}", "1800")
    builders.own(house.vision, house.cluster, "shared", until="2026-03-05 12:00")
    builders.own(house.speech, house.cluster, "shared", since="2026-03-05 12:00")
    with tenant_scope(house.speech), connection.cursor() as cursor:
        cursor.execute(
            "SELECT hour FROM billing_ownhour WHERE record_id = %s ORDER BY hour", [house.record("30")]
        )
        assert [hour for (hour,) in cursor.fetchall()] == [
            int(builders.at(f"2026-03-05 {hour}").timestamp()) for hour in ("12:00", "13:00")
        ]


def test_a_period_without_use_says_so() -> None:
    house = a_busy_house()
    for person, path in ((house.ann, ANNS), (house.op, OPS)):
        text = page(person, f"{path}?from=2026-05-01&through=2026-05-31")
        assert "No GPU usage in this period" in text
        assert "1 May 2026 – 31 May 2026" in text


def test_an_operator_without_a_cluster_is_told_how_to_begin() -> None:
    op = builders.an_operator()
    assert "No clusters yet" in page(op, OPS)
    assert signed_in(op).get(f"{OPS}csv").status_code == 404


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("?from=2026-03-31&through=2026-03-01", "The period ends before it begins"),
        ("?from=2024-01-01&through=2026-03-31", "A page reports 400 days at most"),
        ("?from=soon&through=2026-03-31", "Enter both days like 2026-03-01, in the years 1971 to 8999."),
        ("?from=0002-03-01&through=2026-03-31", "Enter both days like 2026-03-01"),
        ("?through=9999-12-31", "Enter both days like 2026-03-01"),
    ],
)
def test_a_period_that_is_none_is_one_sentence(query: str, sentence: str) -> None:
    house = a_busy_house()
    for person, path in ((house.ann, ANNS), (house.op, OPS)):
        assert sentence in page(person, path + query)
        assert signed_in(person).get(f"{path}csv{query}").status_code == 404


@pytest.mark.parametrize("query", ["?by=colour", "?cluster=gpu9", "?by=tenant"])
def test_what_is_no_choice_is_not_found(query: str) -> None:
    house = a_busy_house()
    if query != "?by=tenant":
        assert signed_in(house.op).get(OPS + query).status_code == 404
    if query != "?cluster=gpu9":
        assert signed_in(house.ann).get(ANNS + query).status_code == 404


def test_the_days_are_the_tenants_own() -> None:
    """In Berlin the second of March begins an hour before it does in Greenwich."""
    house = a_busy_house()
    house.vision.timezone = "Europe/Berlin"
    house.vision.save()
    late = builders.a_job(job_id="40", started="2026-03-08 23:30", ended="2026-03-09 01:00")
    builders.ingest(house.cluster, late)
    text = page(house.ann, f"{ANNS}?from=2026-03-09&through=2026-03-09")
    assert cells(text, "vision")[1] == "1.50"


def test_op_reads_the_margin_where_costs_were_entered_and_ann_never() -> None:
    house = a_house(close=False)
    builders.ingest(
        house.cluster, builders.a_job(started="2026-05-01", ended="2026-05-02"), as_of="2026-05-10"
    )
    seen = [NodeSeen(name="n1", gpu_model="a100", gpus=2, state=NodeState.UP)]
    capacity.observe(house.cluster, seen, builders.at("2026-05-01"))
    capacity.observe(house.cluster, seen, builders.at("2026-05-02"))
    day = "?from=2026-05-01&through=2026-05-01"
    assert "Operating cost" not in page(house.op, OPS + day)

    operating_costs.set_costs([Cost("", "a100", "USD", Decimal("0.50"), date(2026, 5, 1))])
    text = page(house.op, OPS + day)
    page_text = " ".join(re.sub(r"<[^>]*>", " ", text).split())
    assert "Revenue $48.00" in page_text  # 24 hours at 2.00
    assert "Operating cost $24.00" in page_text  # two GPUs for 24 hours at 0.50
    assert "Margin $24.00 50 % of revenue" in page_text
    assert "Operating cost" not in page(house.ann, ANNS + day)

    operating_costs.set_costs([Cost("", "h100", "USD", Decimal("0.50"), date(2026, 5, 1))])
    OperatingCost.objects.filter(gpu_model="a100").delete()
    assert "No operating cost in USD of a100 holds on 2026-05-01" in page(house.op, OPS + day)
