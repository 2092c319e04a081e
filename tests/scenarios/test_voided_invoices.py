"""An unpaid invoice is taken back under its own number, its usage is pending again, and another one refers to it."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest
from django.db import DatabaseError, transaction
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from billing.catalog import version_terms
from billing.invoicing import credit_notes, voids
from billing.invoicing.voids import VoidError
from billing.models import Invoice, InvoiceLine, InvoiceSeries, InvoiceState, LineKind, Voiding
from billing.receivables import settlement
from billing.rules.money import Money
from portal.core.audit import acting_as
from portal.core.audit.models import AuditEntry
from portal.core.outbox import outbox
from portal.core.tenants.models import Corrections, Tenant
from tests import on_terms
from tests.builders import a_cluster, a_job, a_plan, a_seller, a_tenant, ingest, own
from tests.stories import closed, hours, invoice_of, printed, prove
from tests.terms import TWO_DOLLARS, a_version
from tests.tiers import examples

pytestmark = pytest.mark.django_db

TODAY = date(2026, 4, 9)


@pytest.fixture
def vision() -> Tenant:
    """Billed 4.00 for March as INV-2026-0001."""
    return a_lab()


def a_lab(corrections: str = Corrections.CREDIT_NOTE) -> Tenant:
    cluster = a_cluster(complete_through="2026-09-01")
    a_seller()
    lab = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")], corrections=corrections)
    ingest(cluster, a_job(source_key="7@1", ended="2026-03-02 12:00"))
    closed("2026-03", lab)
    return lab


def void(invoice: Invoice, reason: str = "Wrong address.") -> Invoice:
    return voids.void_invoice(invoice=invoice, reason=reason, by="op", on=TODAY)


def test_case_058_a_void_invoice_keeps_its_number_and_its_usage_is_pending_until_another_is_issued(
    vision: Tenant,
) -> None:
    march = invoice_of(vision, "2026-03")
    assert prove()["billed"] == hours(2)

    with acting_as("op@cluster.example", why="Wrong address."):
        void(march)

    march.refresh_from_db()
    assert (march.state, march.number) == (InvoiceState.VOID, "INV-2026-0001")
    assert prove() | {"billed": 0, "pending": hours(2)} == prove()
    voiding = Voiding.objects.get()
    assert (voiding.reason, voiding.by, voiding.on) == ("Wrong address.", "op", TODAY)
    entry = AuditEntry.objects.of(march).latest("pk")
    assert (entry.after, entry.who, entry.why) == (
        {"state": "void"}, "op@cluster.example", "Wrong address.",
    )  # fmt: skip
    assert closed("2026-03", vision).number == "INV-2026-0002"
    again = invoice_of(vision, "2026-03")
    assert (again.replaces, again.total) == (march, 400)
    assert InvoiceSeries.objects.get().last_number == 2
    assert prove()["billed"] == hours(2)


def test_case_058_an_invoice_cannot_be_void_twice(vision: Tenant) -> None:
    march = void(invoice_of(vision, "2026-03"))
    with pytest.raises(VoidError, match="INV-2026-0001 is void already"):
        void(march)
    with pytest.raises(DatabaseError, match="stays void"), transaction.atomic():
        Voiding.objects.update(reason="none")
    with pytest.raises(DatabaseError, match="cannot go from void to issued"), transaction.atomic():
        Invoice.objects.update(state=InvoiceState.ISSUED)


def test_case_058_a_paid_invoice_is_taken_back_by_a_credit_note_alone(vision: Tenant) -> None:
    march = invoice_of(vision, "2026-03")
    settlement.record_payment(
        invoice=march, amount=Money.of("4.00", "USD"), received_on=TODAY, reference="A1", recorded_by="op"
    )

    with pytest.raises(VoidError, match="INV-2026-0001 was paid; credit it instead"):
        void(march)
    with pytest.raises(DatabaseError, match="paid or credited cannot be void"), transaction.atomic():
        Voiding.objects.create(invoice=march, tenant=vision, on=TODAY, reason="x", by="op")
    note = credit_notes.issue_credit_note(invoice=march, reason="Wrong address.", by="op", on=TODAY)
    assert (note.number, note.total) == ("CN-2026-0001", -400)
    stand = settlement.load_balance(invoice=march, on=TODAY)
    assert (stand.settlement, stand.due.text) == ("paid", "-4.00")
    prove()


def test_what_cannot_be_void_says_why(vision: Tenant) -> None:
    march = invoice_of(vision, "2026-03")
    with pytest.raises(VoidError, match="Say why"):
        void(march, " ")
    ingest(a_cluster(), a_job(started="2026-04-02 10:00", ended="2026-04-02 11:00"))
    closed("2026-04", vision)
    with pytest.raises(
        VoidError, match=r"INV-2026-0002 was issued with or after INV-2026-0001 and counts on it"
    ):
        void(march)

    void(invoice_of(vision, "2026-04"))
    void(march)

    assert prove()["pending"] == hours(3)
    assert closed("2026-04", vision).reason == "March 2026 has usage and is not closed: close it first."
    assert [closed(month, vision).number for month in ("2026-03", "2026-04")] == [
        "INV-2026-0003",
        "INV-2026-0004",
    ]
    assert prove()["billed"] == hours(3)


def test_an_invoice_that_was_credited_in_part_is_credited_in_full_and_never_void(vision: Tenant) -> None:
    march = invoice_of(vision, "2026-03")
    note = credit_notes.issue_credit_note(
        invoice=march, reason="Slow.", by="op", on=TODAY, net=Money.of("1.00", "USD")
    )
    with pytest.raises(VoidError, match="INV-2026-0001 was credited by CN-2026-0001"):
        void(march)
    with pytest.raises(VoidError, match="CN-2026-0001 is a credit note"):
        void(note)


def test_an_invoice_that_credit_notes_were_issued_with_stands(vision: Tenant) -> None:
    ingest(
        a_cluster(),
        a_job(source_key="7@1", ended="2026-03-02 11:00"),
        a_job(started="2026-04-02 10:00", ended="2026-04-02 11:00"),
    )
    closed("2026-04", vision)
    with pytest.raises(VoidError, match="CN-2026-0001 was issued with or after INV-2026-0002"):
        void(invoice_of(vision, "2026-04"))
    prove()


def test_an_invoice_of_a_fee_alone_stands_under_the_one_that_corrects_it() -> None:
    """Of somebody who used nothing at all: 310.00 of March are 155.00, which April's invoice takes up."""
    version = a_version(TWO_DOLLARS)
    version_terms.set_fee(version=version, name="Access", amount=Decimal(310))
    _, lab = on_terms.a_lab(version)
    closed("2026-03", lab)
    version_terms.set_fee(
        version=version, name="Access", amount=Decimal(155), tenant=lab, valid_from=on_terms.MARCH
    )
    version_terms.set_fee(
        version=version, name="Support", amount=Decimal(200), tenant=lab, valid_from=on_terms.MARCH
    )
    closed("2026-04", lab)
    assert on_terms.billed(lab, "2026-04") == [
        ("2026-04", "Access", "155.00"),
        ("2026-04", "Support", "200.00"),
        ("2026-03", "Access", "-310.00"),
        ("2026-03", "Access", "155.00"),
        ("2026-03", "Support", "200.00"),
    ]
    with pytest.raises(
        VoidError, match=r"INV-2026-0002 was issued with or after INV-2026-0001 and counts on it"
    ):
        void(invoice_of(lab, "2026-03"))

    void(invoice_of(lab, "2026-04"))
    void(invoice_of(lab, "2026-03"))
    closed("2026-03", lab)
    assert on_terms.billed(lab, "2026-03") == [
        ("2026-03", "Access", "155.00"),
        ("2026-03", "Support", "200.00"),
    ]


def test_what_was_credited_by_hand_of_an_older_invoice_keeps_no_fee_from_being_void() -> None:
    version = a_version(TWO_DOLLARS)
    version_terms.set_fee(version=version, name="Access", amount=Decimal(310))
    _, lab = on_terms.a_lab(version)
    closed("2026-03", lab)
    closed("2026-04", lab)
    march = invoice_of(lab, "2026-03")
    credit_notes.issue_credit_note(
        invoice=march, reason="Slow.", by="op", on=TODAY, net=Money.of("10.00", "USD")
    )
    assert void(invoice_of(lab, "2026-04")).state == InvoiceState.VOID


def test_the_pdf_of_a_void_invoice_stays_and_the_new_one_says_what_it_replaces(vision: Tenant) -> None:
    outbox.drain()
    march = invoice_of(vision, "2026-03")
    before = bytes(march.document.pdf)
    void(march)
    closed("2026-03", vision)
    outbox.drain()
    march = Invoice.objects.get(number="INV-2026-0001")
    assert bytes(march.document.pdf) == before
    assert b"%PDF" in bytes(invoice_of(vision, "2026-03").document.pdf)[:8]


@pytest.mark.swept
@settings(max_examples=examples(8, 100, short=2), phases=[Phase.explicit, Phase.generate])
@given(
    policy=st.sampled_from(Corrections.values),
    steps=st.lists(
        st.tuples(st.sampled_from(["use", "close", "void", "credit"]), st.integers(1, 12)),
        min_size=4,
        max_size=12,
    ),
)
def test_case_095_whatever_is_used_closed_voided_and_credited_the_sums_hold(
    policy: str, steps: list[tuple[str, int]]
) -> None:
    """What stands of use is what is owed of it; what was void counts nothing; nothing is credited beyond its line."""
    with transaction.atomic():
        lab, month = a_lab(policy), 4
        own(lab, a_cluster(), "audio")
        for step, size in steps:
            newest = Invoice.objects.issued().exclude(kind="credit-note").order_by("pk").last()
            if step == "use":
                account = ("vision", "audio")[size % 2]
                ingest(
                    a_cluster(), a_job(source_key="7@1", account=account, ended=f"2026-03-02 {10 + size}:00")
                )
            elif step == "close" and month < 8:  # what the cluster has told of ends in August
                closed(f"2026-{month:02d}", lab)
                month += 1
            elif newest is not None:
                try:
                    if step == "void":
                        void(newest)
                        month = newest.period_start.month
                    else:
                        credit_notes.issue_credit_note(
                            invoice=newest,
                            reason="Slow.",
                            by="op",
                            on=TODAY,
                            net=Money.from_minor(size * 50, "USD"),
                        )
                except (VoidError, credit_notes.CreditError):
                    pass
            prove()
        ingest(
            a_cluster(),
            a_job(source_key="8@1", started=f"2026-{month:02d}-02 00:00", ended=f"2026-{month:02d}-02 20:00"),
        )
        closed(f"2026-{month:02d}", lab)
        assert prove()["pending"] == 0
        lines = InvoiceLine.objects.filter(invoice__state=InvoiceState.ISSUED)
        used = sum(lines.filter(kind=LineKind.USAGE).values_list("amount", flat=True))
        seconds = sum(int(n) for n in lines.values_list("seconds_num", flat=True))
        assert used == seconds * 200 // 3600
        transaction.set_rollback(True)


def test_a_void_invoice_is_not_owed_and_its_lines_are_billed_once(vision: Tenant) -> None:
    void(invoice_of(vision, "2026-03"))
    closed("2026-03", vision)
    assert printed(invoice_of(vision, "2026-03")) == [("2026-03", "vision", "2", "4.00")]
    invoices = Invoice.objects.issued()
    assert sum(invoice.total for invoice in invoices) == 400
