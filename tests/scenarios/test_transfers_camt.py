"""Files in camt.053 that hold more, or less, than one whole statement of the account."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from django.core.management import call_command

from billing.bank_transfers import camt as reader
from billing.bank_transfers.entities import StatementError
from billing.models import BankStatement, Transfer
from portal.ops.cli import RefusedError
from tests.statements import IBAN, Line, a_lab, camt, imported, march, reference, stands

OTHER = "DE02500105170137075030"


def statement_of(data: bytes) -> bytes:
    match = re.search(rb"<Stmt>.*</Stmt>", data)
    assert match
    return match[0]


@pytest.mark.django_db
def test_of_a_file_with_several_accounts_the_one_that_invoices_name_is_read() -> None:
    invoice = march(a_lab())
    line = Line(amount="20.00", reference=reference(invoice))
    ours = camt(line, name="ours")
    theirs = statement_of(camt(line, line, account=OTHER, name="theirs"))
    done = imported(ours.replace(b"</Stmt>", b"</Stmt>" + theirs, 1))
    assert [(row.name, row.account) for row in done.statements] == [("ours", IBAN)]
    assert stands(invoice) == ("paid", "20.00", "0.00")
    with pytest.raises(
        StatementError, match=f"This is a statement of {OTHER}, and invoices ask to pay to {IBAN}"
    ):
        imported(camt(line, account=OTHER))


@pytest.mark.django_db
@pytest.mark.parametrize("kind", ["OPBD", "CLBD"])
def test_without_a_balance_a_statement_is_read_only_where_somebody_says_so_and_is_marked(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    invoice = march(a_lab())
    file = tmp_path / "april.xml"
    whole = camt(Line(amount="20.00", reference=reference(invoice)), name="8 April")
    file.write_bytes(re.sub(rb"<Bal><Tp><CdOrPrtry><Cd>" + kind.encode() + rb".*?</Bal>", b"", whole))
    with pytest.raises(RefusedError, match=f"has no balance {kind}.*--unchecked"):
        call_command("import_statement", str(file))
    assert not Transfer.objects.exists()
    call_command("import_statement", str(file), "--unchecked", "--json")
    (row,) = json.loads(capsys.readouterr().out)["statements"]
    assert (row["checked"], row["opening"], row["closing"]) == (False, None, None)
    assert (BankStatement.objects.get().form, stands(invoice)[0]) == ("camt", "paid")
    call_command("import_statement", str(file), "--unchecked")
    assert capsys.readouterr().out.startswith("0 new, 1 known before")


@pytest.mark.django_db
def test_a_statement_that_does_not_add_up_is_refused_whatever_somebody_says(tmp_path: Path) -> None:
    a_lab()
    file = tmp_path / "april.xml"
    file.write_bytes(camt(Line(amount="20.00"), closing="1.00"))
    with pytest.raises(RefusedError, match="does not add up"):
        call_command("import_statement", str(file), "--unchecked")


def test_a_document_in_an_envelope_is_read() -> None:
    document = camt(Line(amount="20.00", text="INV-2026-0001")).replace(b'<?xml version="1.0"?>', b"")
    for before, after in (
        (b'<Envelope xmlns="urn:soap"><Header/><Body>', b"</Body></Envelope>"),
        (b'<BizMsgEnvlp xmlns="urn:bah"><AppHdr><Id>7</Id></AppHdr>', b"</BizMsgEnvlp>"),
    ):
        (statement,) = reader.read_camt(before + document + after)
        assert [entry.amount for entry in statement.entries] == [2000]
    with pytest.raises(StatementError, match="This is no bank statement"):
        reader.read_camt(b"<Envelope><Document/></Envelope>")
    report = document.replace(b"camt.053", b"camt.052")
    with pytest.raises(StatementError, match="This is a report within the day"):
        reader.read_camt(b"<Body>" + report + b"</Body>")


def test_nothing_but_entries_leaves_the_currency_to_them() -> None:
    bare = re.sub(rb"<Bal>.*?</Bal>", b"", camt(Line(amount="20.00"), Line(amount="-3.00")))
    (statement,) = reader.read_camt(bare, unchecked=True)
    assert ([entry.amount for entry in statement.entries], statement.currency) == ([2000, -300], "EUR")
    (nothing,) = reader.read_camt(re.sub(rb"<Ntry>.*</Ntry>", b"", bare), unchecked=True)
    assert nothing.entries == ()
