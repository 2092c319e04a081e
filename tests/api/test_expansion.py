"""What objects hold besides, in a fixed number of queries. Case 10 of the API."""

from __future__ import annotations

from datetime import date

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.invoicing import credit_notes
from billing.models import Invoice
from billing.receivables import manual_payments
from billing.rules.money import Money
from billing.wallets import grants, wallet_holds
from portal.api import expansion
from tests import builders
from tests.api.door import Door, door
from tests.web.house import House

pytestmark = pytest.mark.django_db


def credited(house: House, net: str, reason: str) -> Invoice:
    return credit_notes.issue_credit_note(
        invoice=house.invoice, reason=reason, by="op", on=date(2026, 4, 5), net=Money.of(net, "USD"),
        moment=builders.at("2026-04-05"),
    )  # fmt: skip


def test_api_010_an_invoice_holds_its_lines_payments_and_credit_notes_with_theirs(
    house: House, ann: Door
) -> None:
    path = f"/invoices/{house.invoice.number}"
    plain = ann.reads(path)
    note = credited(house, "3.00", "outage")
    manual_payments.record_transfer(
        invoice=house.invoice, amount=Money.of("1.00", "USD"), received_on=date(2026, 4, 6), reference="A1",
        recorded_by="op", at=builders.at("2026-04-06"),
    )  # fmt: skip
    invoice = ann.reads(f"{path}?expand=lines,payments,credit_notes.lines")
    assert {*invoice} - {*plain} == {"lines", "payments", "credit_notes"}
    assert invoice["lines"] == ann.all(f"{path}/lines")
    assert invoice["payments"] == ann.all("/payments")
    (shown,) = invoice["credit_notes"]
    assert shown["number"] == note.number
    assert shown["lines"] == ann.all(f"/invoices/{note.number}/lines")
    assert "lines" not in ann.reads(f"{path}?expand=credit_notes")["credit_notes"][0]


def test_api_010_a_list_is_expanded_in_as_many_queries_as_one_object(house: House, op: Door) -> None:
    op.reads("/me")
    counts = []
    for path in (f"/invoices/{house.invoice.number}", "/invoices"):
        plain, expanded = (queries_of(op, path + query) for query in ("", "?expand=lines,payments"))
        counts.append(expanded - plain)
    assert counts == [2, 2]
    rows = op.reads("/invoices?expand=lines")["data"]
    assert [[line["amount"] for line in row["lines"]] for row in rows] == [
        [line["amount"] for line in op.all(f"/invoices/{row['number']}/lines")] for row in rows
    ]


def queries_of(op: Door, path: str) -> int:
    with CaptureQueriesContext(connection) as queries:
        op.reads(path)
    return len(queries)


def test_api_010_only_what_is_listed_and_not_on_long_lists(
    house: House, ann: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = ann.get("/invoices?expand=tenant")
    assert refused.problem == (400, "invalid-request")
    assert "choose among lines, payments, credit_notes, credit_notes.lines" in refused.body["detail"]
    assert "limit=50" in ann.get("/invoices?expand=lines&limit=51").body["detail"]
    assert ann.get("/invoices?expand=lines&limit=50").status == 200
    assert ann.get("/jobs?expand=pieces").problem == (400, "invalid-request")
    monkeypatch.setattr(expansion, "MOST", 0)
    assert "one by one" in ann.get("/invoices?expand=lines").body["detail"]


def test_api_037_a_wallet_has_grants_holds_and_statements(house: House, ann: Door) -> None:
    wallet = house.wallet
    grants.grant(wallet=wallet, amount=2500, key="welcome", who="op", moment=builders.at("2026-04-01 09:00"))
    wallet_holds.hold(wallet=wallet, amount=700, key="job 9", moment=builders.at("2026-04-02"))
    (row,) = ann.reads("/wallets?expand=grants,holds")["data"]
    path = f"/wallets/{row['id']}"
    assert row["balance"] == {"amount": "25.00", "currency": "USD"}
    assert [(one["kind"], one["left"]["amount"]) for one in row["grants"]] == [("gift", "25.00")]
    assert [(one["key"], one["amount"]["amount"]) for one in row["holds"]] == [("job 9", "7.00")]
    assert ann.reads(f"{path}?expand=holds,grants") == row
    assert (ann.all(f"{path}/grants?left=true"), ann.all(f"{path}/holds?standing=true")) == (
        row["grants"],
        row["holds"],
    )
    wallet_holds.release(wallet=wallet, key="job 9", moment=builders.at("2026-04-03"))
    assert ann.all(f"{path}/holds?standing=true") == []
    assert ann.all(f"{path}/holds")[0]["released_at"] == "2026-04-03T00:00:00Z"
    eve = door(house.eve, house.speech)
    for part in ("", "/grants", "/holds", "/statement?period=2026-04"):
        assert eve.get(path + part).problem == (404, "not-found")


def test_api_037_a_statement_goes_from_the_opening_to_the_closing_balance(house: House, ann: Door) -> None:
    wallet = house.wallet
    for amount, key, at in ((2500, "welcome", "2026-03-31 23:59"), (500, "april", "2026-04-01 00:00")):
        grants.grant(wallet=wallet, amount=amount, key=key, who="op", moment=builders.at(at))
    (row,) = ann.all("/wallets")
    statement = ann.reads(f"/wallets/{row['id']}/statement?period=2026-04")
    amounts = {name: statement[name]["amount"] for name in ("opening", "closing")}
    assert amounts == {"opening": "25.00", "closing": "30.00"}
    assert statement["movements"] == [{"side": "granted", "amount": {"amount": "5.00", "currency": "USD"}}]
    (booking,) = statement["bookings"]
    assert (booking["at"], booking["balance"]["amount"]) == ("2026-04-01T00:00:00Z", "30.00")
    assert (statement["count"], statement["period"]["to"]) == (1, "2026-05-01T00:00:00Z")
