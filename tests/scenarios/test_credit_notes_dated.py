"""Of which day a credit note is: by the clock where its invoice was issued, and never of one before it."""

from __future__ import annotations

from datetime import UTC, date, datetime, tzinfo

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, transaction
from django.test import Client

from billing.invoicing import credit_notes
from billing.invoicing.credit_notes import CreditError
from billing.models import DocumentKind, Invoice, Voiding
from portal.core.tenants.models import Corrections, Tenant
from tests.builders import a_cluster, a_job, a_plan, a_tenant, an_operator, at, ingest
from tests.stories import closed, invoice_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def november() -> Invoice:
    """Issued in the first hours of the new year in Tokyo, on the last day of the old one in UTC."""
    lab = a_tenant(plan=a_plan(), accounts=[(a_cluster(), "vision")], timezone="Asia/Tokyo")
    ingest(a_cluster(), a_job(started="2026-11-02 10:00", ended="2026-11-02 12:00"), as_of="2027-01-02")
    closed("2026-11", lab, on="2026-12-31 15:30")
    invoice = invoice_of(lab, "2026-11")
    assert (invoice.number, str(invoice.issued_on)) == ("INV-2027-0001", "2027-01-01")
    return invoice


@pytest.fixture
def that_night(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is 23:30 in Greenwich on New Year's Eve, and morning in Tokyo."""

    class FrozenDatetime(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> FrozenDatetime:
            return cls.fromtimestamp(at("2026-12-31 23:30").timestamp(), tz)

    for name in ("billing.admin.invoices", *(f"portal.ops.management.commands.{c}" for c in COMMANDS)):
        monkeypatch.setattr(f"{name}.datetime", FrozenDatetime)


COMMANDS = ("credit_invoice", "void_invoice", "write_off")


def act(action: str, invoice: Invoice) -> None:
    op = Client()
    op.force_login(an_operator())
    form = {
        "action": action,
        "why": "The queue was down.",
        "_selected_action": [invoice.pk],
        "confirmed": "yes",
    }
    assert op.post("/admin/billing/invoice/", form).status_code == 302


def dated() -> list[tuple[str, str]]:
    notes = Invoice.objects.filter(kind=DocumentKind.CREDIT_NOTE).order_by("pk")
    return [(note.number or "", str(note.issued_on)) for note in notes]


@pytest.mark.usefixtures("that_night")
def test_a_credit_note_is_of_the_day_where_its_invoice_was_issued(november: Invoice) -> None:
    call_command(
        "credit_invoice", "INV-2027-0001", "--reason", "The queue was down.", "--net", "1.00", "--json"
    )
    act("credit_in_full", november)
    assert dated() == [("CN-2027-0001", "2027-01-01"), ("CN-2027-0002", "2027-01-01")]


@pytest.mark.usefixtures("that_night")
def test_an_invoice_is_void_and_written_off_on_the_day_where_it_was_issued(november: Invoice) -> None:
    call_command("write_off", november.number, "--reason", "They went away.", "--json")
    assert str(november.write_offs.get().on) == "2027-01-01"
    call_command("void_invoice", november.number, "--reason", "The wrong lab.", "--json")
    assert str(Voiding.objects.get().on) == "2027-01-01"


@pytest.mark.usefixtures("that_night")
def test_a_day_is_neither_before_the_invoice_nor_still_to_come(november: Invoice) -> None:
    command = ("credit_invoice", november.number, "--reason", "The queue was down.", "--on")
    with pytest.raises(CommandError, match="is no older than its invoice: date it on that day, or later"):
        call_command(*command, "2020-01-01")
    with pytest.raises(CommandError, match="it is 2027-01-01 where INV-2027-0001 was issued"):
        call_command(*command, "2027-01-02")
    assert dated() == []


def test_the_database_refuses_a_credit_note_that_is_older_than_its_invoice(november: Invoice) -> None:
    day, moment = date(2027, 1, 1), datetime(2027, 1, 1, tzinfo=UTC)
    note = credit_notes.issue_credit_note(invoice=november, reason="Late.", by="op", on=day, moment=moment)
    assert note.issued_on == november.issued_on
    with pytest.raises(CreditError, match="is no older than its invoice"):
        credit_notes.issue_credit_note(
            invoice=november, reason="Late.", by="op", on=date(2026, 12, 31), moment=moment
        )
    draft = Invoice.objects.get(pk=note.pk)
    draft.pk, draft.number, draft.state = None, None, "draft"
    draft.subtotal = draft.tax = draft.total = 0
    draft.save()
    with pytest.raises(DatabaseError, match="would be older than its invoice"), transaction.atomic():
        Invoice.objects.filter(pk=draft.pk).update(
            state="issued", number="CN-2026-0001", issued_on=date(2026, 12, 31), due_on=date(2026, 12, 31)
        )


def test_a_lab_that_moved_west_is_credited_on_the_day_of_its_invoice() -> None:
    """March is billed on the 6th in Tokyo; a few minutes later April is on the 5th in Los Angeles."""
    lab = a_tenant(
        plan=a_plan(),
        accounts=[(a_cluster(), "vision")],
        timezone="Asia/Tokyo",
        corrections=Corrections.CREDIT_NOTE,
    )
    march = {"source_key": "7@1", "started": "2026-03-02 10:00"}
    ingest(a_cluster(), a_job(**march, ended="2026-03-02 14:00"), as_of="2026-09-01")
    closed("2026-03", lab, on="2026-05-05 20:00")
    Tenant.objects.update(timezone="America/Los_Angeles")
    lab.refresh_from_db()
    ingest(a_cluster(), a_job(**march, ended="2026-03-02 13:00"), as_of="2026-09-01")

    april = closed("2026-04", lab, on="2026-05-05 20:10")

    assert [(one.number, one.total.text) for one in april.related_documents] == [("CN-2026-0001", "-2.00")]
    assert str(invoice_of(lab, "2026-03").issued_on) == "2026-05-06"
    assert dated() == [("CN-2026-0001", "2026-05-06")]
