"""Months to be downloaded: Carla's own charges, and Op's journal."""

from __future__ import annotations

import csv
import io

import pytest
from django.test import Client

from tests import sharing
from tests.web.house import House, a_house, page, signed_in

pytestmark = pytest.mark.django_db


begun, house = sharing.fixtures(a_house, "house")


def accounts(client: Client, path: str) -> set[str]:
    response = client.get(path)
    assert response.status_code == 200, response.status_code
    text = b"".join(response.streaming_content).decode()  # type: ignore[attr-defined]
    return {row["BillingAccountId"] for row in csv.DictReader(io.StringIO(text))}


def test_carla_downloads_the_charges_of_her_tenant(house: House) -> None:
    assert 'value="2026-03"' in page(house.carla, "/t/vision-lab/invoices/")
    address = "/t/vision-lab/exports/focus?period=2026-03"

    assert accounts(signed_in(house.carla), address) == {"tenants/vision-lab"}
    for person in (house.ben, house.eve):
        assert signed_in(person).get(address).status_code == 404


def test_op_downloads_the_journal(house: House) -> None:
    address = "/operator/exports/ledger?period=2026-04"
    response = signed_in(house.op).get(address)

    assert 'filename="ledger-2026-04.csv"' in response.headers["Content-Disposition"]
    assert house.invoice.number in b"".join(response.streaming_content).decode()  # type: ignore[attr-defined, operator]
    for person in (house.ann, house.carla):
        assert signed_in(person).get(address).status_code == 404


@pytest.mark.parametrize("query", ["", "?period=2026-00", "?period=x", "?period=0000-01"])
def test_what_is_no_month_is_no_page(house: House, query: str) -> None:
    assert signed_in(house.ann).get(f"/t/vision-lab/exports/focus{query}").status_code == 404
    assert signed_in(house.op).get(f"/operator/exports/ledger{query}").status_code == 404
