"""What a command does and refuses, the API does and refuses: one table for both doors. Cases 28, 33, 42 and 43."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import transaction

from billing.invoicing import close_runs
from billing.models import CloseKind, CloseRun, DunningPause, Invoice, PendingApproval
from billing.receivables import settlement
from portal.api import identifiers
from portal.core.audit.models import AuditEntry
from tests import builders
from tests.api.door import Answer, Door, door
from tests.web.house import House

pytestmark = pytest.mark.django_db

USD = "USD"


def dollars(amount: str) -> dict[str, str]:
    return {"amount": amount, "currency": USD}


@dataclass(frozen=True)
class Doors:
    """The same intent as a command and as a request. `{invoice}` and the like are filled in from the house."""

    command: tuple[str, ...]
    path: str
    body: dict[str, Any]
    before: tuple[tuple[str, ...], ...] = ()  # commands that came earlier
    method: str = "POST"
    without: frozenset[str] = field(default=frozenset({"currency"}))  # each amount has it in the API


REFUSE = {
    "a credit note without a reason": Doors(
        ("credit_invoice", "{invoice}", "--reason", " "),
        "/invoices/{invoice}/credit-notes",
        {"reason": " "},
    ),
    "more than is left to credit": Doors(
        ("credit_invoice", "{invoice}", "--reason", "outage", "--net", "5000.00"),
        "/invoices/{invoice}/credit-notes",
        {"reason": "outage", "net": dollars("5000.00")},
    ),
    "a line that is not there": Doors(
        ("credit_invoice", "{invoice}", "--reason", "outage", "--line", "9"),
        "/invoices/{invoice}/credit-notes",
        {"reason": "outage", "line": 9},
    ),
    "a credit of nothing": Doors(
        ("credit_invoice", "{invoice}", "--reason", "outage", "--net", "0"),
        "/invoices/{invoice}/credit-notes",
        {"reason": "outage", "net": dollars("0.00")},
    ),
    "a write-off without a reason": Doors(
        ("write_off", "{invoice}", "--reason", " "), "/invoices/{invoice}/write-offs", {"reason": " "}
    ),
    "taking back what was not written off": Doors(
        ("write_off", "{invoice}", "--reason", "paid", "--take-back"),
        "/invoices/{invoice}/write-offs",
        {"reason": "paid", "take_back": True},
    ),
    "writing off what is paid": Doors(
        ("write_off", "{invoice}", "--reason", "lost"),
        "/invoices/{invoice}/write-offs",
        {"reason": "lost"},
        before=(("credit_invoice", "{invoice}", "--reason", "all of it"),),
    ),
    "a transfer of nothing": Doors(
        ("record_payment", "{invoice}", "0", "--reference", "A1"),
        "/invoices/{invoice}/manual-payments",
        {"amount": dollars("0.00"), "reference": "A1"},
    ),
    "a transfer that is still to come": Doors(
        ("record_payment", "{invoice}", "5", "--reference", "A1", "--on", "2099-11-20"),
        "/invoices/{invoice}/manual-payments",
        {"amount": dollars("5.00"), "reference": "A1", "on": "2099-11-20"},
    ),
    "a transfer from before the period": Doors(
        ("record_payment", "{invoice}", "5", "--reference", "A1", "--on", "1990-01-01"),
        "/invoices/{invoice}/manual-payments",
        {"amount": dollars("5.00"), "reference": "A1", "on": "1990-01-01"},
    ),
    "a grant of nothing": Doors(
        ("grant_credit", "vision-lab", "0", "--reference", "A1"),
        "/wallets/{wallet}/grants",
        {"amount": dollars("0.00"), "reference": "A1"},
    ),
    "another amount under one reference": Doors(
        ("grant_credit", "vision-lab", "7", "--reference", "A1"),
        "/wallets/{wallet}/grants",
        {"amount": dollars("7.00"), "reference": "A1"},
        before=(("grant_credit", "vision-lab", "5", "--reference", "A1"),),
    ),
    "a grant that has expired": Doors(
        ("grant_credit", "vision-lab", "5", "--reference", "A1", "--expires", "2020-01-01"),
        "/wallets/{wallet}/grants",
        {"amount": dollars("5.00"), "reference": "A1", "expires": "2020-01-01"},
    ),
    "a pause without a reason": Doors(
        ("pause_dunning", "vision-lab", "--why", " "), "/tenants/vision-lab/dunning-pauses", {"why": " "}
    ),
    "a pause that has ended": Doors(
        ("pause_dunning", "vision-lab", "--why", "talks", "--until", "2020-01-01"),
        "/tenants/vision-lab/dunning-pauses",
        {"why": "talks", "until": "2020-01-01"},
    ),
    "a decision without a reason": Doors(
        ("approve_invoice", "vision-lab", "2026-03", "--why", " "),
        "/approvals/{approval}/decisions",
        {"decision": "approved", "why": " "},
    ),
    "a decision on what is issued": Doors(
        ("approve_invoice", "vision-lab", "2026-03", "--why", "fine"),
        "/approvals/{approval}/decisions",
        {"decision": "approved", "why": "fine"},
    ),
}

DO = {
    "a credit note": Doors(
        ("credit_invoice", "{invoice}", "--reason", "outage", "--net", "3.00"),
        "/invoices/{invoice}/credit-notes",
        {"reason": "outage", "net": dollars("3.00")},
    ),
    "a write-off": Doors(
        ("write_off", "{invoice}", "--reason", "lost"), "/invoices/{invoice}/write-offs", {"reason": "lost"}
    ),
    "a write-off taken back": Doors(
        ("write_off", "{invoice}", "--reason", "paid", "--take-back"),
        "/invoices/{invoice}/write-offs",
        {"reason": "paid", "take_back": True},
        before=(("write_off", "{invoice}", "--reason", "lost"),),
    ),
    "a transfer": Doors(
        ("record_payment", "{invoice}", "20.00", "--reference", "A1"),
        "/invoices/{invoice}/manual-payments",
        {"amount": dollars("20.00"), "reference": "A1"},
        without=frozenset({"currency", "payment"}),  # the command prints the row's number
    ),
    "a grant": Doors(
        ("grant_credit", "vision-lab", "5", "--reference", "A1"),
        "/wallets/{wallet}/grants",
        {"amount": dollars("5.00"), "reference": "A1"},
        without=frozenset(),
    ),
    "a pause of one invoice": Doors(
        ("pause_dunning", "vision-lab", "--why", "talks", "--invoice", "{invoice}", "--until", "2199-01-01"),
        "/tenants/vision-lab/dunning-pauses",
        {"why": "talks", "invoice": "{invoice}", "until": "2199-01-01"},
        without=frozenset(),
    ),
}


def filled(house: House) -> Callable[[str], str]:
    """The names of the house in a text."""
    names = {
        "{invoice}": str(house.invoice.number),
        "{wallet}": identifiers.write("wal", house.wallet.pk),
        "{approval}": identifiers.write("app", an_approval(house).pk),
    }

    def fill(text: str) -> str:
        for name, value in names.items():
            text = text.replace(name, value)
        return text

    return fill


def an_approval(house: House) -> PendingApproval:
    row, _ = PendingApproval.objects.get_or_create(
        period=house.invoice.period,
        tenant=house.vision,
        defaults={
            "reason": "large", "currency": USD, "total": 100, "lines": 1, "since": builders.at("2026-04-02"),
        },
    )  # fmt: skip
    return row


def send(op: Door, doors: Doors, fill: Callable[[str], str], *, query: str = "", key: str = "k") -> Answer:
    body = json.loads(fill(json.dumps(doors.body)))
    return op.send(doors.method, fill(doors.path) + query, body, **{"Idempotency-Key": key})


@pytest.mark.parametrize("case", REFUSE)
def test_api_042_what_the_command_refuses_the_api_refuses_with_the_same_sentence(
    house: House, op: Door, case: str
) -> None:
    doors, fill = REFUSE[case], filled(house)
    for earlier in doors.before:
        call_command(*map(fill, earlier))
    with pytest.raises(CommandError) as by_command, transaction.atomic():
        call_command(*map(fill, doors.command))
    refused = send(op, doors, fill)
    assert refused.problem == (409, "refused"), refused.raw
    assert refused.body["detail"] == str(by_command.value)


@pytest.mark.parametrize("case", DO)
def test_api_042_what_the_command_does_the_api_does_and_says_by_the_same_names(
    house: House, op: Door, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    doors, fill = DO[case], filled(house)
    for earlier in doors.before:
        call_command(*map(fill, earlier))
    capsys.readouterr()
    with transaction.atomic():
        call_command(*map(fill, doors.command), "--json")
        transaction.set_rollback(True)
    printed = json.loads(capsys.readouterr().out)
    answer = send(op, doors, fill)
    assert answer.status == 201, answer.raw
    assert {*printed} - doors.without <= {*answer.body}
    for name in {*printed} - doors.without:
        value = answer.body[name]
        assert (value["amount"] if isinstance(value, dict) else value) == printed[name], name


@pytest.mark.parametrize("case", DO)
def test_api_033_a_preview_says_the_same_and_keeps_nothing(house: House, op: Door, case: str) -> None:
    doors, fill = DO[case], filled(house)
    for earlier in doors.before:
        call_command(*map(fill, earlier))
    entries, invoices = AuditEntry.objects.count(), Invoice.objects.count()
    balance = settlement.load_balance(invoice=house.invoice, on=builders.at("2026-05-01").date())
    previewed = send(op, doors, fill, query="?dry_run=true")
    assert previewed.status == 201, previewed.raw
    assert (AuditEntry.objects.count(), Invoice.objects.count()) == (entries, invoices)
    assert settlement.load_balance(invoice=house.invoice, on=builders.at("2026-05-01").date()) == balance
    done = send(op, doors, fill)
    unlike = {"credit_note", "payment", "since"}
    assert {name: value for name, value in done.body.items() if name not in unlike} == {
        name: value for name, value in previewed.body.items() if name not in unlike
    }
    if case == "a credit note":
        assert (previewed.body["credit_note"], done.body["credit_note"]) == (None, "CN-2026-0001")


@pytest.mark.parametrize("case", [case for case, doors in DO.items() if "pause" not in case])
def test_api_028_what_moves_money_needs_a_key_and_happens_once(house: House, op: Door, case: str) -> None:
    doors, fill = DO[case], filled(house)
    for earlier in doors.before:
        call_command(*map(fill, earlier))
    body = json.loads(fill(json.dumps(doors.body)))
    assert op.post(fill(doors.path), body).problem == (400, "invalid-request")
    first = send(op, doors, fill)
    again = send(op, doors, fill)
    assert (again.body, again.headers["Idempotent-Replayed"]) == (first.body, "true")
    assert first.status == 201


def test_api_042_a_pause_holds_until_it_is_resumed(house: House, op: Door) -> None:
    path, entry = "/tenants/vision-lab/dunning-pauses", {"why": "talks"}
    assert op.writes(path, entry)["invoice"] is None
    assert [row["why"] for row in op.reads(path)["data"]] == ["talks"]
    assert [op.send("DELETE", path).status for _ in range(2)] == [204, 404]
    assert DunningPause.objects.get().ended_by.startswith(house.op.email)


def test_api_042_the_history_has_who_why_and_through_what(house: House, op: Door) -> None:
    op.writes(f"/invoices/{house.invoice.number}/write-offs", {"reason": "bankrupt"}, key="w")
    entry = AuditEntry.objects.filter(table="billing_writeoff").latest("pk")
    assert entry.why == "bankrupt"
    assert entry.who.startswith(f"{house.op.email} (API key ")
    assert entry.through.startswith("API POST /api/v1/invoices/")


def test_api_032_a_close_is_an_operation_until_a_worker_has_done_it(house: House, op: Door) -> None:
    asked_for = {"month": "2026-04", "kind": "preview"}
    assert op.post("/closes", asked_for).problem == (400, "invalid-request")
    operation = op.writes("/closes", asked_for, key="c", status=202)
    assert (operation["state"], operation["progress"]) == ("waiting", {"done": 0, "total": 2})
    refused = op.post("/closes", asked_for, key="d")
    assert refused.problem == (409, "refused")
    run = CloseRun.objects.get()
    with pytest.raises(close_runs.RunError) as by_page:
        close_runs.request_run(
            month="2026-04", kind=CloseKind.PREVIEW, by="op", moment=builders.at("2026-05-02")
        )
    assert str(by_page.value) == refused.body["detail"]
    close_runs.perform_run(run.pk, clock=lambda: builders.at("2026-05-02"))
    finished = op.reads(f"/operations/{operation['id']}")
    assert (finished["state"], finished["progress"]["done"], finished["problem"]) == ("succeeded", 2, None)
    assert op.reads(finished["result"].removeprefix("/api/v1"))["data"]


def test_api_032_a_close_that_workers_died_of_says_so(house: House, op: Door) -> None:
    operation = op.writes("/closes", {"month": "2026-04", "kind": "issue"}, key="c", status=202)
    CloseRun.objects.update(attempts=close_runs.ATTEMPTS)
    close_runs.perform_run(CloseRun.objects.get().pk, clock=lambda: builders.at("2026-05-02"))
    failed = op.reads(f"/operations/{operation['id']}")
    assert failed["state"] == "failed"
    assert "Ask again" in failed["problem"]["detail"]


def test_api_032_reading_of_usage_is_an_operation_too(house: House, op: Door) -> None:
    pull = op.reads("/pulls")["data"][0]
    operation = op.reads(f"/operations/{pull['id']}")
    assert (operation["state"], operation["result"]) == ("succeeded", f"/api/v1/pulls/{pull['id']}")
    assert op.reads(f"/pulls/{pull['id']}") == pull
    assert op.get("/operations/inv_0000000000000").problem == (404, "not-found")


def test_api_042_an_approval_of_figures_that_changed_is_refused(house: House, op: Door) -> None:
    row = an_approval(house)
    path = f"/approvals/{identifiers.write('app', row.pk)}/decisions"
    body = {"decision": "approved", "why": "fine", "total": dollars("9.00"), "lines": 1}
    refused = op.post(path, body, key="a")
    assert refused.problem == (409, "refused")
    assert "1.00 USD" in refused.body["detail"]


@pytest.mark.parametrize("case", DO)
def test_api_018_a_key_that_only_reads_does_none_of_it(house: House, case: str) -> None:
    reader, doors, fill = door(house.op, None, "ops:read"), DO[case], filled(house)
    assert send(reader, doors, fill).problem == (403, "missing-scope")
