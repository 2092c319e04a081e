"""Op uploads a bank statement and decides what nobody could be sure of."""

from __future__ import annotations

import re

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from billing.models import Invoice, Transfer
from billing.receivables import credit_balance
from portal.core.audit.models import AuditEntry
from portal.core.tenants.models import Tenant
from tests import sharing
from tests.builders import a_cluster, a_job, a_person, an_operator, ingest
from tests.statements import Line, a_lab, camt, imported, march, stands
from tests.stories import close, invoice_of
from tests.web.house import page, signed_in
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db

PATH = "/operator/bank-transfers/"


begun, lab = sharing.fixtures(a_lab, "lab")  # owes 20.00 EUR for March


@pytest.fixture
def invoice(lab: Tenant) -> Invoice:
    return march(lab)


@pytest.fixture
def op() -> Client:
    return signed_in(an_operator())


def post(op: Client, **fields: object) -> str:
    answer = op.post(PATH, fields, follow=True)
    assert answer.status_code == 200
    return words(answer.content.decode())


def upload(op: Client, data: bytes, name: str = "april.xml") -> str:
    return post(op, act="upload", file=SimpleUploadedFile(name, data))


def only() -> Transfer:
    return Transfer.objects.get()


def test_op_uploads_a_statement_and_sees_what_came_of_it(op: Client, invoice: Invoice) -> None:
    assert "Every transfer is matched or ignored." in words(op.get(PATH).content.decode())
    text = upload(op, camt(Line(amount="20.00", text="INV-2026-0001"), Line(amount="7.00", text="?")))
    assert "2 new transfers, 0 already imported; 1 matched, 1 need review." in text
    assert "Unmatched 1 €7.00 Matched 1 €20.00" in text
    assert "2026-04-08 april.xml DE89 3704 0044 0532 0130 00" in text
    assert stands(invoice)[0] == "paid"
    again = upload(op, camt(Line(amount="20.00", text="INV-2026-0001"), Line(amount="7.00", text="?")))
    assert "0 new transfers, 2 already imported" in again


def test_op_previews_a_csv_and_says_what_it_leaves_open(op: Client, invoice: Invoice) -> None:
    data = b"date;amount;text;Richtung\n08/04/2026;20.00;INV-2026-0001;Zu\n"

    def sent(act: str, **fields: str) -> str:
        return post(op, act=act, file=SimpleUploadedFile("april.csv", data), **fields)

    refused = sent("preview")
    assert "not known what the column 'Richtung' means" in refused
    assert "Say it with “Column meanings” 'NAME=ignore'" in refused
    assert "--column" not in refused
    assert "is given as NAME=MEANING, not as 'Richtung'" in sent("preview", columns="Richtung")
    fields = {
        "columns": "Richtung=direction\n",
        "words": "Zu=credit\nAb=debit",
        "dates": "dmy",
        "currency": "eur",
    }
    seen = sent("preview", **fields)
    assert "Choose the file again to import it." in seen
    assert "Preview, nothing imported: 1 new transfer, 0 already imported; 1 matched, 0 need review." in seen
    assert not Transfer.objects.exists()
    assert "1 new transfer, 0 already imported; 1 matched" in sent("upload", **fields)
    assert (stands(invoice)[0], str(only().booked_on)) == ("paid", "2026-04-08")


def test_what_op_says_of_a_file_stays_while_it_is_refused_or_previewed(op: Client, invoice: Invoice) -> None:
    fields = {"columns": "Richtung=direction", "words": "Zu=credit", "dates": "dmy", "unchecked": "yes"}

    def shown(act: str, data: bytes) -> str:
        file = SimpleUploadedFile("april.csv", data)
        return op.post(PATH, {"act": act, "file": file, **fields}, follow=True).content.decode()

    good = b"date;amount;text;currency;Richtung\n08/04/2026;20.00;INV-2026-0001;EUR;Zu\n"
    for html in (shown("upload", b"\x89PNG"), shown("preview", good)):
        assert '<details class="ct-open-ends" open' in html
        assert ">Richtung=direction</textarea>" in html
        assert ">Zu=credit</textarea>" in html
        assert '<option value="dmy" selected>' in html
        assert 'value="yes" checked' in html
    assert "Richtung=direction</textarea>" not in shown("upload", good)
    assert "Richtung=direction</textarea>" not in op.get(PATH).content.decode()


def test_a_file_that_is_none_is_refused_in_a_sentence(op: Client, lab: Tenant) -> None:
    assert "no bank statement in camt.053" in upload(op, b"<a/>")
    assert "Choose a file" in post(op, act="upload")


def test_hints_say_why_and_one_press_books(op: Client, invoice: Invoice) -> None:
    imported(camt(Line(amount="20.00", text="thank you", payer="VISION LAB GmbH")))
    text = words(op.get(PATH).content.decode())
    assert "INV-2026-0001 of Vision Lab same amount, a similar name €20.00" in text
    page_text = post(op, act="assign", transfer=only().pk, invoices="INV-2026-0001")
    assert "€20.00 matched." in page_text
    assert stands(invoice) == ("paid", "20.00", "0.00")
    assert AuditEntry.objects.of(only()).latest("pk").who == "op@cluster.example"


def test_case_080_what_op_books_beyond_what_is_due_is_credit_and_is_paid_back(
    op: Client, lab: Tenant, invoice: Invoice
) -> None:
    imported(camt(Line(amount="26.00", text="March and some")))
    post(op, act="assign", transfer=only().pk, invoices="INV-2026-0001")
    assert (stands(invoice), credit_balance.get_balance(lab, "EUR")) == (("paid", "20.00", "0.00"), 600)
    assert "Vision Lab €6.00" in words(op.get(PATH).content.decode())
    fields = {"act": "pay-back", "tenant": "vision-lab", "currency": "EUR", "reference": "B77"}
    assert "The credit balance is 6.00 EUR: pay back that much at most." in post(op, **fields, amount="6.01")
    assert "Recorded: €6.00 paid back to Vision Lab." in post(op, **fields, amount="6.00")
    post(op, **fields, amount="6.00")  # pressed twice
    assert credit_balance.get_balance(lab, "EUR") == 0


def test_all_of_it_may_be_credit(op: Client, lab: Tenant) -> None:
    imported(camt(Line(amount="50.00", text="advance")))
    post(op, act="assign", transfer=only().pk, invoices="", tenant="vision-lab")
    assert credit_balance.get_balance(lab, "EUR") == 3000  # 20.00 paid what was due
    assert stands(march(lab))[0] == "paid"


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"invoices": ""}, "Say which invoices it pays, or whose credit it is."),
        ({"invoices": "INV-2026-0099"}, "There is no issued invoice INV-2026-0099."),
        ({"invoices": "X" * 9000}, f"There is no issued invoice {'X' * 79}…."),
        ({"invoices": "", "tenant": "nobody"}, "There is no tenant"),
    ],
)
def test_what_cannot_be_booked_is_refused_in_a_sentence(
    op: Client, lab: Tenant, fields: dict[str, str], sentence: str
) -> None:
    imported(camt(Line(amount="7.00", text="?")))
    assert sentence in post(op, act="assign", transfer=only().pk, **fields)
    assert only().state == "waiting"


def test_op_sets_aside_with_a_reason_and_takes_that_back(op: Client, lab: Tenant) -> None:
    imported(camt(Line(amount="7.00", text="Stripe payout")))
    assert "Say why it is set aside" in post(op, act="aside", transfer=only().pk, why=" ")
    post(op, act="aside", transfer=only().pk, why="Payout of the card processor")
    shown = words(op.get(f"{PATH}?show=aside").content.decode())
    assert "Payout of the card processor op@cluster.example" in shown
    post(op, act="again", transfer=only().pk, why="It was not", show="aside")
    assert only().state == "waiting"


def test_a_booking_is_taken_back_and_made_anew(op: Client, invoice: Invoice) -> None:
    imported(camt(Line(amount="20.00", text="INV-2026-0001", name="B1")))
    post(op, act="again", transfer=only().pk, why="It was for another", show="booked")
    assert stands(invoice) == ("due", "0.00", "20.00")
    post(op, act="assign", transfer=only().pk, invoices="INV-2026-0001")
    assert stands(invoice) == ("paid", "20.00", "0.00")
    post(op, act="again", transfer=only().pk, why="Once more", show="booked")
    assert stands(invoice) == ("due", "0.00", "20.00")


def test_op_says_which_transfer_a_debit_takes_back(op: Client, invoice: Invoice) -> None:
    imported(camt(Line(amount="20.00", text="INV-2026-0001")))
    imported(camt(Line(amount="-20.00", text="recalled", reversal=True), name="next"))
    first, debit = Transfer.objects.order_by("pk")
    assert "Returns 8 Apr 2026, Vision Lab booked, same amount" in words(op.get(PATH).content.decode())
    post(op, act="returns", transfer=debit.pk, original=first.pk)
    assert stands(invoice) == ("due", "0.00", "20.00")


def test_an_entry_in_quarantine_shows_what_the_bank_wrote_until_it_is_settled(
    op: Client, lab: Tenant
) -> None:
    imported(camt(Line(amount="3.00", on="soon", text="<b>bold</b>")))
    answer = op.get(PATH).content.decode()
    assert "It was booked on &#x27;soon&#x27;, which is no day." in answer
    assert "<b>bold</b>" not in answer
    entry = re.search(r'name="entry" value="(\d+)"', answer)
    assert entry is not None
    post(op, act="settle", entry=entry[1], why="Booked by hand")
    assert "Quarantined entries" not in words(op.get(PATH).content.decode()).split("Statements")[0]


def test_ann_sees_neither_the_page_nor_the_transfers_of_others(lab: Tenant) -> None:
    ann = signed_in(a_person(tenant=lab))
    assert ann.get(PATH).status_code == 404
    assert ann.post(PATH, {"act": "upload"}).status_code == 404


def test_the_page_asks_as_many_questions_for_one_transfer_as_for_twenty(op: Client, lab: Tenant) -> None:
    def queries() -> int:
        with CaptureQueriesContext(
            connection,
        ) as context:
            assert op.get(PATH).status_code == 200
        return len(context)

    imported(camt(Line(amount="7.00", text="?"), Line(amount="-7.00", reversal=True)))
    queries()
    few = queries()
    more = [Line(amount=f"{n}.00", text=f"? {n}", iban=f"DE{n}") for n in range(10, 28)]
    imported(camt(*more, name="more"))
    assert queries() == few


def test_a_number_in_a_form_that_is_none_is_not_found(op: Client) -> None:
    assert op.post(PATH, {"act": "assign", "transfer": "1²"}).status_code == 404
    assert op.post(PATH, {"act": "assign", "transfer": "99999"}).status_code == 404


def test_ann_sees_what_was_paid_and_what_credit_she_has(lab: Tenant, invoice: Invoice) -> None:
    ann = a_person(tenant=lab)
    imported(camt(Line(amount="25.00", text="INV-2026-0001", name="B1")))
    text = words(page(ann, f"/t/vision-lab/invoices/{invoice.number}/"))
    assert "8 Apr 2026 Bank transfer · B1 €20.00" in text
    assert "Credit balance €5.00 Paid beyond what was due" in words(page(ann, "/t/vision-lab/payment/"))
    ingest(a_cluster(), a_job(started="2026-04-02 10:00", ended="2026-04-02 11:00", gpus=2))
    close("2026-04", lab)
    april = words(page(ann, f"/t/vision-lab/invoices/{invoice_of(lab, '2026-04').number}/"))
    assert "From credit €4.00" in april


def test_a_transfer_has_a_page_of_what_became_of_it(op: Client, invoice: Invoice) -> None:
    imported(
        camt(Line(amount="25.00", text="thank you", payer="VISION LAB GmbH", name="B1", end_to_end="E1"))
    )
    path = f"{PATH}{only().pk}/"
    assert f'href="{path}"' in op.get(PATH).content.decode()
    assert "It was never booked on an invoice, a credit balance or a wallet." in words(
        op.get(path).content.decode()
    )
    post(op, act="assign", transfer=only().pk, invoices="INV-2026-0001")
    post(op, act="again", transfer=only().pk, why="It was for another", show="booked")
    text = words(op.get(path).content.decode())
    assert "€25.00 on 8 Apr 2026 VISION LAB GmbH Needs review" in text
    assert "Paid by VISION LAB GmbH Payer’s account DE75 5121 0800 1245 1261 99 Text thank you" in text
    assert "Payer’s reference E1 Bank’s reference B1 Our account DE89 3704 0044 0532 0130 00" in text
    assert "Imported 9 Apr 2026, 08:00 by op" in text
    assert "INV-2026-0001, Vision Lab €20.00 Credit, Vision Lab €5.00" in text
    assert "INV-2026-0001, Vision Lab taken back -€20.00" in text
    steps = re.findall(
        r"(Matching|Needs review|Matched) (bank statement|op@cluster.example) ([^,]+?) \d", text
    )
    assert [step[:2] for step in steps] == [
        ("Matching", "bank statement"),
        ("Needs review", "bank statement"),
        ("Matched", "op@cluster.example"),
    ]
    assert text.count("It was for another") == 1


def test_a_transfer_and_what_took_it_back_lead_to_each_other(op: Client, invoice: Invoice) -> None:
    imported(camt(Line(amount="20.00", text="INV-2026-0001", name="B1", end_to_end="E1")))
    imported(camt(Line(amount="-20.00", name="B2", end_to_end="E1", returned="AC04"), name="next"))
    came, went = Transfer.objects.order_by("pk")
    first, second = (op.get(f"{PATH}{row.pk}/").content.decode() for row in (came, went))
    assert "Returned by the transfer of -€20.00 on 8 Apr 2026." in words(first)
    assert f'href="{PATH}{went.pk}/"' in first
    assert "Returns the transfer of €20.00 on 8 Apr 2026." in words(second)
    assert f'href="{PATH}{came.pk}/"' in second


def test_the_page_of_a_transfer_is_only_for_operators_and_only_to_look_at(op: Client, lab: Tenant) -> None:
    imported(camt(Line(amount="7.00", text="?")))
    path = f"{PATH}{only().pk}/"
    assert signed_in(a_person("ann@vision.example", lab)).get(path).status_code == 404
    assert op.get(f"{PATH}{only().pk + 1}/").status_code == 404
    assert op.get(f"{PATH}{10**30}/").status_code == 404
    assert op.post(path).status_code == 405
