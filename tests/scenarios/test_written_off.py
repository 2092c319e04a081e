"""Op gives up what an invoice has due: it is told apart in every sum, and what comes after all counts first."""

from __future__ import annotations

from datetime import date

import pytest
from django.core.management import call_command
from django.db import DatabaseError, transaction

from billing.invoicing import credit_notes
from billing.invoicing.offboarding import find_obstacles
from billing.models import Invoice, WriteOff
from billing.proof import checks
from billing.queries import invoices as reading
from billing.receivables import settlement, write_offs
from billing.receivables.write_offs import WriteOffError
from billing.rules.money import Money
from portal.core.tenants.models import Tenant
from tests import stories
from tests.builders import a_cluster, a_job, a_plan, a_seller, a_tenant, at, ingest
from tests.history import history

pytestmark = pytest.mark.django_db

ON = date(2026, 7, 20)


@pytest.fixture
def lab() -> Tenant:
    """March's invoice of the vision lab, 4.00, due on 15 April."""
    cluster = a_cluster()
    a_seller()
    lab = a_tenant("vision-lab", plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job(started="2026-03-02 10:00", ended="2026-03-02 12:00"), as_of="2026-07-20")
    stories.close("2026-03", lab, on="2026-04-01")
    return lab


def the_invoice(lab: Tenant) -> Invoice:
    return stories.invoice_of(lab, "2026-03")


def pay(lab: Tenant, amount: str, reference: str = "SEPA 1") -> None:
    settlement.record_payment(
        invoice=the_invoice(lab),
        amount=Money.of(amount, "USD"),
        received_on=ON,
        reference=reference,
        recorded_by="op",
    )


def give_up(lab: Tenant) -> WriteOff:
    return write_offs.write_off_invoice(invoice=the_invoice(lab), reason="insolvent", by="op", on=ON)


def sums(lab: Tenant) -> tuple[str, str, str, str, str]:
    """Paid, credited, written off, due, and how it stands; they always come to 4.00."""
    stand = settlement.load_balance(invoice=the_invoice(lab), on=ON)
    parts = (stand.paid, stand.credited, stand.written_off, stand.due)
    assert sum((part.minor for part in parts), 0) == the_invoice(lab).total == 400
    assert checks.prove().holds
    return (*(part.text for part in parts), stand.settlement.value)  # type: ignore[return-value]


def test_case_095_what_is_written_off_is_told_apart_and_the_sums_close(lab: Tenant) -> None:
    pay(lab, "1.00")
    give_up(lab)
    assert sums(lab) == ("1.00", "0.00", "3.00", "0.00", "written_off")
    assert reading.outstanding(lab)[0].count == 0
    (row,), _ = reading.newest(lab, on=ON)
    assert row.balance.written_off.text == "3.00"
    assert [sentence for sentence in find_obstacles(lab, moment=at("2026-07-20")) if "due" in sentence] == []


def test_money_that_comes_after_all_makes_it_smaller_down_to_nothing(lab: Tenant) -> None:
    give_up(lab)
    pay(lab, "1.50")
    assert sums(lab) == ("1.50", "0.00", "2.50", "0.00", "written_off")
    pay(lab, "2.50", "SEPA 2")
    assert sums(lab) == ("4.00", "0.00", "0.00", "0.00", "paid")
    pay(lab, "-2.50", "SEPA 2 went back")
    assert sums(lab) == ("1.50", "0.00", "2.50", "0.00", "written_off")


def test_a_credit_note_counts_before_what_is_written_off(lab: Tenant) -> None:
    give_up(lab)
    credit_notes.issue_credit_note(
        invoice=the_invoice(lab),
        reason="goodwill",
        by="op",
        on=ON,
        net=Money.of("1.00", "USD"),
        moment=at("2026-07-20"),
    )
    assert sums(lab) == ("0.00", "1.00", "3.00", "0.00", "written_off")


def test_it_is_done_once_and_taken_back_once_each_with_a_reason(lab: Tenant) -> None:
    with pytest.raises(WriteOffError, match="Say why"):
        write_offs.write_off_invoice(invoice=the_invoice(lab), reason=" ", by="op", on=ON)
    assert give_up(lab).pk == give_up(lab).pk
    write_offs.reverse_write_off(
        invoice=the_invoice(lab), reason="they pay after all", by="op", moment=at("2026-07-21")
    )
    assert sums(lab) == ("0.00", "0.00", "0.00", "4.00", "past_due")
    with pytest.raises(WriteOffError, match=r"Nothing of INV-2026-0001 is written off\."):
        write_offs.reverse_write_off(
            invoice=the_invoice(lab), reason="again", by="op", moment=at("2026-07-21")
        )
    pay(lab, "4.00")
    with pytest.raises(WriteOffError, match=r"INV-2026-0001 has nothing due\."):
        give_up(lab)


def test_case_094_the_history_says_who_gave_up_how_much_and_why_and_nobody_deletes_it(lab: Tenant) -> None:
    row = give_up(lab)
    assert history(row, "amount", "by", "reason") == [("insert", 400, "op", "insolvent")]
    for statement in (WriteOff.objects.filter(pk=row.pk).delete, lambda: WriteOff.objects.update(amount=1)):
        with pytest.raises(DatabaseError), transaction.atomic():
            statement()


def test_op_writes_off_at_the_shell(lab: Tenant, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("write_off", "INV-2026-0001", reason="insolvent")
    assert capsys.readouterr().out == "INV-2026-0001: 4.00 USD written off, 0.00 due.\n"
    call_command("write_off", "INV-2026-0001", reason="they pay", take_back=True)
    assert capsys.readouterr().out == "INV-2026-0001: 0.00 USD written off, 4.00 due.\n"
