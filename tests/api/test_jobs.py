"""Jobs and what they cost, payments and wallets, as scripts read them. Cases 35 and 37 of the API."""

from __future__ import annotations

from datetime import date
from fractions import Fraction

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.receivables import manual_payments
from billing.rules.money import Money
from billing.wallets import grants
from portal.api.resources.jobs import exact
from tests import builders
from tests.api.door import Door, door
from tests.web.house import House

pytestmark = pytest.mark.django_db


def test_api_035_a_job_says_what_it_costs_and_why(house: House, ann: Door) -> None:
    first, second = ann.all("/jobs")
    assert (first["job_id"], second["job_id"]) == ("18", "17")
    assert second["cost"] == {"amount": "12", "currency": "USD"}
    assert (second["gpu_seconds"], second["verdict"], second["gpus"]) == ("21600", "charged", 2)
    assert (second["started_at"], second["ended_at"]) == ("2026-03-02T10:00:00Z", "2026-03-02T13:00:00Z")
    detail = ann.reads(f"/jobs/{second['id']}")
    (piece,) = [piece for piece in detail["pieces"] if piece["verdict"] == "charged"]
    assert piece["invoice"] == house.invoice.number
    assert (piece["resource_seconds"], piece["unit_price"], piece["meter"]) == ("21600", "2", "gpu-hour")
    line = ann.all(f"/invoices/{piece['invoice']}/lines")[0]
    assert piece["line"] == line["position"]
    assert piece["from"] == "2026-03-02T10:00:00Z"


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("user=ada", ["18"]),
        ("from=2026-03-03T00:00:00Z", ["18"]),
        ("from=2026-03-02T10:00:00Z&to=2026-03-03T10:00:00Z", ["17"]),
        ("state=COMPLETED", ["18", "17"]),
        ("state=completed&state=failed", ["18", "17"]),
        ("gpu_model=h100", []),
        ("project=vision&job_id=17&job_id=18", ["18", "17"]),
        ("order=-cost", ["17", "18"]),
        ("order=-cost&limit=1", ["17", "18"]),
    ],
)
def test_api_035_jobs_are_filtered_and_ordered(ann: Door, query: str, ids: list[str]) -> None:
    assert [job["job_id"] for job in ann.all(f"/jobs?{query}")] == ids


def test_api_035_another_tenants_job_does_not_exist(house: House, ann: Door) -> None:
    eve = door(house.eve, house.speech)
    (hers,) = eve.all("/jobs")
    assert hers["job_id"] == "19"
    assert ann.get(f"/jobs/{hers['id']}").problem == (404, "not-found")
    assert ann.get("/jobs?tenant=speech-lab").problem == (404, "not-found")


def test_an_operators_key_names_the_tenant_of_the_jobs(op: Door) -> None:
    assert [job["job_id"] for job in op.all("/jobs?tenant=speech-lab")] == ["19"]
    assert op.get("/jobs").problem == (400, "invalid-request")


def test_a_key_of_a_project_sees_that_project_alone(house: House) -> None:
    other = house.vision.projects.create(name="other")
    own = house.vision.projects.get(name="vision")
    assert len(door(house.ann, house.vision, project=own).all("/jobs")) == 2
    assert door(house.ann, house.vision, project=other).all("/jobs") == []
    assert door(house.ann, house.vision, project=own).get("/invoices").problem == (403, "one-project")


def test_a_list_takes_as_many_queries_for_many_jobs_as_for_one(house: House, ann: Door) -> None:
    ann.reads("/me")  # which remembers the hour of the key's use
    with CaptureQueriesContext(connection) as few:
        ann.reads("/jobs?limit=1")
    with CaptureQueriesContext(connection) as many:
        ann.reads("/jobs?limit=200")
    assert len(many) == len(few)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Fraction(12), "12"), (Fraction(1, 8), "0.125"), (Fraction(-1, 20), "-0.05"), (Fraction(50, 7), "50/7"),
        (Fraction(0), "0"), (Fraction(100_000_001, 100), "1000000.01"),
    ],
)  # fmt: skip
def test_exact_amounts_are_decimals_where_they_end(value: Fraction, text: str) -> None:
    assert exact(value) == text


def test_api_037_payments_are_listed_with_their_invoice(house: House, ann: Door) -> None:
    manual_payments.record_transfer(
        invoice=house.invoice,
        amount=Money.of("5.00", "USD"),
        received_on=date(2026, 4, 2),
        reference="transfer 7731",
        recorded_by="op",
        at=builders.at("2026-04-02"),
    )
    (payment,) = ann.all("/payments")
    assert payment["amount"] == {"amount": "5.00", "currency": "USD"}
    assert (payment["invoice"], payment["reference"]) == (house.invoice.number, "transfer 7731")
    assert ann.all("/payments?received_from=2026-04-03") == []
    assert door(house.eve, house.speech).all("/payments") == []


def test_api_037_wallets_are_read_with_their_entries(house: House, ann: Door) -> None:
    wallet = house.wallet
    grants.grant(wallet=wallet, amount=2500, key="welcome", who="op", moment=builders.at("2026-04-01"))
    (row,) = ann.all("/wallets")
    assert row["balance"]["currency"] == "USD"
    entries = ann.all(f"/wallets/{row['id']}/entries?limit=1")
    assert sum(Fraction(entry["amount"]["amount"]) for entry in entries) == Fraction(row["balance"]["amount"])
    eve = door(house.eve, house.speech)
    assert eve.get(f"/wallets/{row['id']}/entries").problem == (404, "not-found")
