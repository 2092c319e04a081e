"""A paid invoice is credited: Ann and Op see that money is owed, and Op pays it back from the list of things to do."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from billing.invoicing import credit_note_previews
from billing.models import DocumentKind, Invoice, Payment
from billing.receivables import settlement
from billing.rules.money import Money
from portal.core.tenants.models import Role
from portal.ops.management.commands import credit_invoice
from tests import builders
from tests.collecting import Scenario, a_scenario, credited
from tests.web.house import signed_in
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db(transaction=True)

COLLECTING = "/operator/receivables/"


@pytest.fixture
def scenario() -> Iterator[Scenario]:
    with a_scenario(now=datetime.now(UTC).replace(microsecond=0)) as scenario:
        yield scenario
        assert scenario.stripe.violations == []


@pytest.fixture
def ann(scenario: Scenario) -> Client:
    return signed_in(builders.a_person("ann@vision.example", scenario.lab, Role.OWNER))


@pytest.fixture
def op() -> Client:
    return signed_in(builders.an_operator())


def shown(person: Client, path: str) -> str:
    return words(person.get(path).content.decode())


def transferred(scenario: Scenario) -> None:
    settlement.record_payment(
        invoice=scenario.invoice, amount=Money.of("4.00", "USD"), received_on=scenario.now.date(),
        reference="A1", recorded_by="op",
    )  # fmt: skip


def test_what_was_paid_by_card_and_credited_is_shown_and_refunded_from_the_list(
    scenario: Scenario, ann: Client, op: Client
) -> None:
    scenario.save_card()
    scenario.collect()
    credited(scenario, "3.00")

    assert "Owed to you $3.00 to be paid back to you, from INV-2026-0001" in shown(ann, "/t/vision-lab/")
    assert "Owed to you: $3.00" in shown(ann, "/t/vision-lab/invoices/")
    with CaptureQueriesContext(connection) as queries:
        text = shown(op, COLLECTING)
    assert len(queries) <= 20  # also where something waits for Op, and where a gateway is asked about
    assert "Owed to tenants (USD) $3.00 1 invoice to refund" in text
    assert "Overdue none Every due invoice is paid" in text  # what is owed back is nothing that is late
    assert (
        "Refund due INV-2026-0001 3.00 USD are owed to Vision Lab: more was paid of INV-2026-0001 than is owed for it. "
        "3.00 USD can be refunded to the card. Refund to card" in text
    )
    form = {"tenant": "vision-lab", "number": "INV-2026-0001", "act": "refund"}
    done = words(op.post(COLLECTING, form, follow=True).content.decode())
    assert "Refunding $3.00 of INV-2026-0001 to the card." in done
    assert "Refund due" not in done
    again = words(op.post(COLLECTING, form, follow=True).content.decode())
    assert "Nothing of INV-2026-0001 can be refunded to a card" in again
    scenario.collect()
    assert "Owed to you" not in shown(ann, "/t/vision-lab/")
    assert "Owed to tenants" not in shown(op, COLLECTING)
    scenario.books_agree()


def test_what_was_paid_by_transfer_is_recorded_as_paid_back_from_the_list(
    scenario: Scenario, ann: Client, op: Client
) -> None:
    transferred(scenario)
    credited(scenario, "1.00")
    assert "Transfer the money and record the transfer. Record transfer" in shown(op, COLLECTING)
    form = {"tenant": "vision-lab", "number": "INV-2026-0001", "act": "transfer"}
    assert "A payment needs its reference" in words(op.post(COLLECTING, form, follow=True).content.decode())
    form["reference"] = "out 77"
    done = words(op.post(COLLECTING, form, follow=True).content.decode())
    assert "Recorded: $1.00 paid back to Vision Lab." in done
    assert Payment.objects.latest("pk").amount == -100
    assert "Owed to you" not in shown(ann, "/t/vision-lab/")
    again = words(op.post(COLLECTING, form, follow=True).content.decode())
    assert "Nothing of INV-2026-0001 is owed to its tenant" in again
    assert ann.post(COLLECTING, form).status_code == 404


def test_crediting_in_the_administration_says_what_will_happen_to_the_money_and_asks(
    scenario: Scenario, op: Client
) -> None:
    scenario.save_card()
    scenario.collect()
    address = reverse("admin:billing_invoice_changelist")
    chosen = {"_selected_action": [scenario.invoice.pk], "why": "Slow.", "action": "credit_in_full"}
    question = words(op.post(address, chosen).content.decode())
    assert "Nothing has been changed yet. This cannot be undone." in question
    assert (
        "INV-2026-0001 of Vision Lab: a credit note over 4.00 USD. 4.00 were paid and will be owed to the tenant; "
        "no money moves automatically. 4.00 can be refunded to the card afterwards, on the page Collections."
        in question
    )
    assert not Invoice.objects.filter(kind=DocumentKind.CREDIT_NOTE).exists()
    op.post(address, {**chosen, "confirmed": "yes"})
    assert Invoice.objects.get(kind=DocumentKind.CREDIT_NOTE).number == "CN-2026-0001"


@pytest.mark.parametrize("action", ["make_void", "write_off", "credit_in_full"])
def test_nothing_is_credited_void_or_written_off_without_confirmation(
    scenario: Scenario, op: Client, action: str
) -> None:
    chosen = {"_selected_action": [scenario.invoice.pk], "why": "Slow.", "action": action}
    before = scenario.settlement
    assert "INV-2026-0001" in op.post(reverse("admin:billing_invoice_changelist"), chosen).content.decode()
    assert scenario.settlement == before


def test_an_unpaid_invoice_has_less_to_pay_after_a_credit(scenario: Scenario) -> None:
    preview = credit_note_previews.preview_credit(
        invoice=scenario.invoice, on=scenario.now.date(), moment=scenario.now, net=Money.of("1.00", "USD")
    )
    assert preview.sentence == (
        "INV-2026-0001 of Vision Lab: a credit note over 1.00 USD. The tenant has 1.00 less to pay."
    )


class Terminal(StringIO):
    """A person who answers."""

    def isatty(self) -> bool:
        return True


@pytest.mark.usefixtures("scenario")
def test_on_a_terminal_credit_invoice_asks_and_a_script_says_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credit_invoice.Command, "_called_from_command_line", True)
    monkeypatch.setattr("portal.ops.schema.refuse_unmigrated", lambda: None)

    def run(**options: Any) -> None:
        with pytest.raises(SystemExit):
            call_command("credit_invoice", "INV-2026-0001", reason="Slow.", stderr=StringIO(), **options)

    monkeypatch.setattr("sys.stdin", StringIO())
    run()
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    run()
    assert not Invoice.objects.filter(kind=DocumentKind.CREDIT_NOTE).exists()
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    call_command("credit_invoice", "INV-2026-0001", reason="Slow.", net="1.00", stderr=StringIO())
    monkeypatch.setattr("sys.stdin", StringIO())
    call_command("credit_invoice", "INV-2026-0001", reason="Slow.", net="1.00", yes=True, stderr=StringIO())
    assert Invoice.objects.filter(kind=DocumentKind.CREDIT_NOTE).count() == 2
