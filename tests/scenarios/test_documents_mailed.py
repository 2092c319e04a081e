"""Invoices and credit notes are e-mailed when they are issued: once, with their PDF, to whoever pays."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from email.message import EmailMessage
from typing import Any

import pytest
from django.core import mail
from django.test import Client

from billing.dunning import dunning_run
from billing.emails import claims, contacts, delivery
from billing.emails.contacts import ContactError
from billing.invoicing import credit_notes
from billing.models import Invoice, InvoiceDocument, Notice
from billing.notifications import issue_notices
from billing.queries import review_items
from billing.receivables import dunning_policies
from billing.rules.money import Money
from portal.core.outbox import outbox
from portal.core.tenants.models import Role, Tenant
from tests import builders
from tests.builders import LONG_AGO, a_cluster, a_job, a_plan, a_seller, a_tenant, at, ingest
from tests.fakes.mail import Counting, counting
from tests.paying import pays
from tests.scenarios.test_dunning_endures import dies_at
from tests.stories import close, invoice_of
from tests.tiers import whole_or
from tests.web.house import page

pytestmark = pytest.mark.django_db(transaction=True)

NOW = at("2026-04-01 10:00")


@pytest.fixture
def server(settings: Any) -> Iterator[Counting]:
    """A mail server on 127.0.0.1, which our own way of sending talks to."""
    with counting(most=100) as mail_server:
        settings.CLUSTERTAB_SENDS_MAIL = True
        settings.PORTAL_URL = "https://billing.example.org"
        settings.EMAIL_BACKEND = "portal.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = mail_server.server_address[:2]
        yield mail_server


@pytest.fixture
def lab() -> Tenant:
    """It used two hours at 2.00 in March."""
    cluster = a_cluster()
    a_seller()
    plan = a_plan(prices=[("gpu-hour", {}, "2.00", LONG_AGO)])
    tenant = a_tenant("vision-lab", plan=plan, accounts=[(cluster, "vision")], email="bills@vision.example")
    job = a_job(account="vision", started="2026-03-02 10:00", ended="2026-03-02 12:00")
    ingest(cluster, job, as_of="2026-04-20")
    return tenant


def text_of(mail: EmailMessage) -> str:
    body = mail.get_body(preferencelist=("plain",))
    assert body is not None
    return " ".join(str(body.get_content()).split())


def names_of(mail: EmailMessage) -> list[str | None]:
    return [part.get_filename() for part in mail.iter_attachments()]


def test_an_invoice_is_emailed_with_amount_due_date_link_pdf_and_e_invoice(
    server: Counting, lab: Tenant
) -> None:
    close("2026-03", lab, on="2026-04-01")
    delivery.send_notices(moment=NOW)
    assert server.accepted == 0  # its PDF is not made yet
    outbox.drain()
    delivery.send_notices(moment=NOW + timedelta(minutes=2))
    (sent,) = server.mails
    assert sent["To"] == "bills@vision.example"
    assert sent["Subject"] == "Invoice INV-2026-0001: $4.00, due on 15 April 2026"
    text = text_of(sent)
    assert "Your invoice INV-2026-0001 for $4.00 is attached." in text
    assert "Please pay $4.00 by 15 April 2026." in text
    assert "https://billing.example.org/t/vision-lab/invoices/INV-2026-0001/" in text
    document = InvoiceDocument.objects.get()
    attached = {part.get_filename(): part.get_content() for part in sent.iter_attachments()}
    assert attached["INV-2026-0001.pdf"] == bytes(document.pdf)
    assert ("INV-2026-0001.xml" in attached) == bool(document.einvoice)
    for later in (3, 600):
        delivery.send_notices(moment=NOW + timedelta(minutes=later))
    assert server.accepted == 1


def test_without_its_pdf_it_goes_after_an_hour(server: Counting, lab: Tenant) -> None:
    close("2026-03", lab, on="2026-04-01")
    for minutes in (0, 30, 59):
        delivery.send_notices(moment=NOW + timedelta(minutes=minutes))
        assert server.accepted == 0
    delivery.send_notices(moment=NOW + timedelta(minutes=61))
    (sent,) = server.mails
    assert names_of(sent) == []
    assert "is on its page, with the PDF" in text_of(sent)


def test_history_that_is_imported_mails_nothing_unless_told_to(server: Counting, lab: Tenant) -> None:
    close("2026-03", lab, on="2026-04-01")
    outbox.drain()
    later = at("2026-05-07 10:00")  # 36 days
    delivery.send_notices(moment=later)
    notice = Notice.objects.get(kind="invoice")
    assert (notice.state, server.accepted) == ("skipped", 0)
    assert notice.reason == issue_notices.TOO_OLD
    assert issue_notices.resend_documents(numbers=["INV-2026-0001"], moment=later) == 1
    delivery.send_notices(moment=later)
    assert server.accepted == 1
    assert issue_notices.resend_documents(numbers=["INV-2026-0001"], moment=later) == 0
    delivery.send_notices(moment=later)
    assert server.accepted == 1


def test_who_pays_for_another_is_written_to(server: Counting, lab: Tenant) -> None:
    faculty = a_tenant("faculty", plan=lab.subscriptions.get().plan, email="bills@faculty.example")
    pays(faculty, lab, "2026-01-01")
    close("2026-03", lab, faculty, on="2026-04-01")
    outbox.drain()
    delivery.send_notices(moment=NOW)
    assert [sent["To"] for sent in server.mails] == ["bills@faculty.example"]


def test_a_credit_note_is_emailed_and_says_what_is_left(server: Counting, lab: Tenant) -> None:
    close("2026-03", lab, on="2026-04-01")
    Notice.objects.all().delete()
    note = credit_notes.issue_credit_note(
        invoice=invoice_of(lab, "2026-03"),
        reason="Slow disks.",
        by="op",
        on=NOW.date(),
        net=Money.of("1.50", "USD"),
    )
    outbox.drain()
    delivery.send_notices(moment=NOW)
    (sent,) = server.mails
    assert sent["Subject"] == f"Credit note {note.number}: $1.50"
    assert "We have credited $1.50 of invoice INV-2026-0001. Slow disks." in text_of(sent)
    assert "$2.50 of the invoice is still due." in text_of(sent)
    assert f"{note.number}.pdf" in names_of(sent)


def test_a_tenant_to_which_nothing_is_written_is_sent_no_document(server: Counting, lab: Tenant) -> None:
    dunning_policies.set_policy(tenant=lab, since=at("2026-01-01").date(), emails=False)
    close("2026-03", lab, on="2026-04-01")
    outbox.drain()
    delivery.send_notices(moment=NOW)
    assert server.accepted == 0


def test_a_document_of_who_has_no_address_is_no_trouble(server: Counting, lab: Tenant) -> None:
    Tenant.objects.update(email="")
    close("2026-03", lab, on="2026-04-01")
    outbox.drain()
    delivery.send_notices(moment=NOW)
    notice = Notice.objects.get()
    assert (notice.state, notice.reason) == ("skipped", claims.NOBODY)
    assert review_items.list_review_items(moment=NOW) == []


def test_what_could_be_sent_to_nobody_goes_to_the_address_that_is_entered(
    server: Counting, lab: Tenant
) -> None:
    Tenant.objects.update(email="")
    close("2026-03", lab, on="2026-04-01")
    outbox.drain()
    delivery.send_notices(moment=NOW)
    for later in (timedelta(days=3), timedelta(days=4)):
        contacts.set_billing_email(tenant=lab, email=f"to{later.days}@vision.example", moment=NOW + later)
        delivery.send_notices(moment=NOW + later)
    (sent,) = server.mails
    assert (sent["To"], names_of(sent)[:1]) == ("to3@vision.example", ["INV-2026-0001.pdf"])


def test_an_address_that_is_refused_is_shown_to_ann_and_to_op_until_it_is_corrected(
    server: Counting, lab: Tenant
) -> None:
    server.refuses = {"bills@vision.example"}
    close("2026-03", lab, on="2026-04-01")
    outbox.drain()
    delivery.send_notices(moment=NOW)
    ann = builders.a_person("ann@vision.example", lab, Role.OWNER)
    sentence = "E-mails to bills@vision.example are refused: 550 no such user here."
    for address in ("/t/vision-lab/invoices/", "/t/vision-lab/payment/"):
        assert sentence in page(ann, address)
    assert "The mail server refuses bills@vision.example" in page(
        builders.an_operator(), "/operator/receivables/"
    )
    with pytest.raises(ContactError, match="is no e-mail address"):
        contacts.set_billing_email(tenant=lab, email="bills at vision", moment=NOW)
    client = Client()
    client.force_login(ann)
    client.post("/t/vision-lab/billing/change/", {"act": "save", "email": "money@vision.example"})
    delivery.send_notices(moment=datetime.now(tz=NOW.tzinfo) if NOW.year > 2026 else at("2026-12-31"))
    notice = Notice.objects.get(kind="invoice")
    assert notice.state in {"sent", "skipped"}
    assert sentence not in page(ann, "/t/vision-lab/payment/")


def test_one_refused_address_of_two_keeps_the_mail_from_nobody_else(server: Counting, lab: Tenant) -> None:
    Tenant.objects.update(email="")
    ann = builders.a_person("ann@vision.example", lab, Role.OWNER)
    builders.a_person("gone@vision.example", lab, Role.BILLING)
    server.refuses = {"gone@vision.example"}
    close("2026-03", lab, on="2026-04-01")
    outbox.drain()
    delivery.send_notices(moment=NOW)
    notice = Notice.objects.get(kind="invoice")
    assert (notice.state, server.accepted) == ("sent", 1)
    assert notice.refused == {"gone@vision.example": "550 no such user here"}
    assert "E-mails to gone@vision.example are refused" in page(ann, "/t/vision-lab/payment/")


@pytest.mark.swept
def test_killed_at_any_statement_each_document_is_sent_once(settings: Any, lab: Tenant) -> None:
    settings.CLUSTERTAB_SENDS_MAIL = True
    close("2026-03", lab, on="2026-04-01")
    outbox.drain()
    statement, unknown = 0, 0

    def a_round() -> None:
        dunning_run.run_dunning(moment=NOW)
        delivery.send_notices(moment=NOW)

    while True:
        statement += whole_or(3, 1)
        Notice.objects.all().delete()
        issue_notices.announce_documents(Invoice.objects.all(), moment=NOW)
        mail.outbox.clear()
        if not dies_at(statement, a_round):
            break
        for _ in range(2):
            a_round()
        notice = Notice.objects.get()
        if notice.state == "sending":  # it may have arrived: people look, and it is not sent again
            unknown += 1
            assert len(mail.outbox) <= 1
        else:
            assert (notice.state, len(mail.outbox)) == ("sent", 1)
    assert statement > 20
    assert unknown <= 3  # around the mail server's answer alone
