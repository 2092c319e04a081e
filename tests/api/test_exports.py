"""Months as the finance systems of tenants and operators fetch them."""

from __future__ import annotations

import csv
import io
from decimal import Decimal
from typing import Any

import pytest

from tests.api.door import Answer, Door
from tests.web.house import House, signed_in

pytestmark = pytest.mark.django_db

MARCH = "/exports/focus?period=2026-03"


def rows(answer: Answer) -> list[dict[str, str]]:
    assert answer.status == 200, answer.raw
    return list(csv.DictReader(io.StringIO(answer.raw.decode())))


def test_api_058_ann_fetches_the_charges_of_her_march_and_nobody_elses(house: House, ann: Door) -> None:
    answer = ann.get(MARCH)

    charges = rows(answer)
    assert answer.headers["Content-Disposition"] == 'attachment; filename="focus-1.2-vision-lab-2026-03.csv"'
    assert (answer.headers["ClusterTab-Status"], answer.headers["Content-Type"]) == (
        "final",
        "text/csv; charset=utf-8",
    )
    assert {row["BillingAccountId"] for row in charges} == {"tenants/vision-lab"}
    assert {row["InvoiceId"] for row in charges} == {house.invoice.number}
    assert sum(Decimal(row["BilledCost"]) for row in charges) == Decimal(house.invoice.total) / 100
    assert ann.get(MARCH).raw == answer.raw


def test_api_058_op_fetches_those_of_one_tenant_and_is_told_where_those_of_all_are(
    ann: Door, op: Door
) -> None:
    assert op.get(f"{MARCH}&tenant=vision-lab").raw == ann.get(MARCH).raw
    refused = op.get(MARCH)
    assert refused.problem == (400, "invalid-request")
    assert "POST /focus-exports" in refused.body["detail"]


def test_api_060_what_can_still_change_says_so(ann: Door, op: Door) -> None:
    for door, of in ((ann, ""), (op, "&tenant=vision-lab")):
        answer = door.get(f"/exports/focus?period=2150-01{of}")
        assert answer.headers["ClusterTab-Status"] == "preliminary"
        assert "-2150-01-preliminary.csv" in answer.headers["Content-Disposition"]
        assert rows(answer) == []


@pytest.mark.parametrize(
    "query", ["", "?period=2026-13", "?period=9998-01", "?period=2026-3", "?period=2026-03&format=xls"]
)
def test_what_is_no_month_or_no_kind_of_file_is_refused(query: str, ann: Door) -> None:
    assert ann.get(f"/exports/focus{query}").problem == (400, "invalid-request")


def test_api_058_the_open_month_is_told_within_the_tenants_own_rows(db: None) -> None:
    from tests.api.door import door
    from tests.web.house import a_house

    house = a_house(close=False)
    answer = door(house.ann, house.vision).get(MARCH)

    charges = rows(answer)
    assert answer.headers["ClusterTab-Status"] == "preliminary"
    assert [(row["BilledCost"], row["InvoiceId"], row["x_Status"]) for row in charges] == [
        ("12.00", "", "preliminary"),
        ("1.00", "", "preliminary"),
    ]


def test_op_fetches_the_journal_and_no_tenant_does(house: House, ann: Door, op: Door) -> None:
    journal = rows(op.get("/exports/ledger?period=2026-04"))

    assert {row["document"] for row in journal} >= {house.invoice.number}
    assert sum(Decimal(row["debit"] or 0) - Decimal(row["credit"] or 0) for row in journal) == 0
    assert ann.get("/exports/ledger?period=2026-04").status == 403


def test_numbers_of_accounts_that_cannot_be_meant_are_told(op: Door, house: House, settings: Any) -> None:
    settings.CLUSTERTAB_LEDGER_ACCOUNTS = ["cash=1"]

    answer = op.get("/exports/ledger?period=2026-04")
    assert (answer.status, "LEDGER_ACCOUNTS" in answer.body["detail"]) == (409, True)
    assert signed_in(house.op).get("/operator/exports/ledger?period=2026-04").status_code == 404
