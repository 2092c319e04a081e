"""Banks that give no camt.053 give CSV: in their own language, with their own commas."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from billing.bank_transfers import csv_statement
from billing.bank_transfers.entities import ReadOptions, StatementError
from billing.models import Payment, RefusedEntry, Transfer
from portal.ops.cli import RefusedError
from tests.statements import IBAN, Line, a_lab, camt, imported, march, reference, stands

ENGLISH = "booked_on,amount,currency,payer,payer_iban,text,bank_reference\n"
GERMAN = (
    "Buchungstag;Betrag;Währung;Beguenstigter/Zahlungspflichtiger;Kontonummer/IBAN;Verwendungszweck;Info\n"
)


def read(text: str, codec: str = "utf-8", **fields: Any) -> list[tuple[int, str, str, str]]:
    options = ReadOptions(account=IBAN, **{"currency": "EUR", **fields})
    statement = csv_statement.read_csv(text.encode(codec), options)
    return [(entry.amount, str(entry.booked_on), entry.payer, entry.text) for entry in statement.entries]


def test_columns_are_found_by_the_header_whatever_their_order_and_language() -> None:
    assert read(ENGLISH + "2026-04-08,20.00,EUR,Vision Lab,DE1,INV-2026-0001,B1\n") == [
        (2000, "2026-04-08", "Vision Lab", "INV-2026-0001")
    ]
    german = GERMAN + '08.04.26;"1.234,56";EUR;Müller & Söhne;DE1;INV-2026-0001;Umsatz gebucht\n'
    for codec in ("utf-8", "utf-8-sig", "cp1252", "utf-16"):
        assert read(german, codec) == [(123456, "2026-04-08", "Müller & Söhne", "INV-2026-0001")]


def test_what_a_bank_writes_above_the_header_is_left_out() -> None:
    assert read("Konto;DE89\nStand;08.04.2026\n\n" + GERMAN + "08.04.2026;-3,00;EUR;a;b;c;\n")[0][0] == -300


def test_what_is_not_booked_yet_is_counted_and_left_out() -> None:
    text = GERMAN + "08.04.2026;3,00;EUR;a;b;c;Umsatz vorgemerkt\n"
    assert csv_statement.read_csv(text.encode(), ReadOptions(account=IBAN)).pending == 1


@pytest.mark.parametrize(
    ("amounts", "cents"),
    [
        (["1.234,56", "7,00", "1.000"], [123456, 700, 100000]),
        (["1,234.56", "1,000"], [123456, 100000]),
        (["1'234.50"], [123450]),
        (["20", "5-", "+3"], [2000, -500, 300]),
        (["1.234.567"], [123456700]),
    ],
)
def test_commas_and_points_are_told_apart_by_the_amounts_that_leave_no_doubt(
    amounts: list[str], cents: list[int]
) -> None:
    rows = "".join(f"2026-04-08;{amount};a\n" for amount in amounts)
    assert [row[0] for row in read("date;amount;text\n" + rows)] == cents


def test_an_amount_in_doubt_is_refused_until_it_is_said() -> None:
    with pytest.raises(StatementError, match="may be a thousand or one: say with --decimal"):
        read("date;amount;text\n2026-04-08;1.234;a\n")
    assert read("date;amount;text\n2026-04-08;1.234;a\n", decimal=",")[0][0] == 123400
    with pytest.raises(StatementError, match="Some amounts have a decimal comma and some a decimal point"):
        read("date;amount;text\n2026-04-08;1,50;a\n2026-04-08;1.50;b\n")


@pytest.mark.parametrize(
    ("mark", "wrong", "right", "cents"),
    [(",", "12.50", "1.234,50", 123450), (".", "12,50", "1,234,567.50", 123456750)],
)
def test_a_decimal_mark_that_the_file_does_not_have_books_nothing_a_hundredfold(
    mark: str, wrong: str, right: str, cents: int
) -> None:
    text = f"date;amount;text\n2026-04-08;{wrong};a\n2026-04-08;{right};b\n"
    statement = csv_statement.read_csv(text.encode(), ReadOptions(account=IBAN, currency="EUR", decimal=mark))
    assert [entry.amount for entry in statement.entries] == [cents]
    assert [str(row.error) for row in statement.bad] == [
        f"'{wrong}' is no amount with '{mark}' before its cents."
    ]


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "No line of the file is a header with the columns 'booked_on' and 'amount'"),
        (b"\x00\x01\x02", "no text in UTF-8, UTF-16 or Windows-1252"),
        (b'date,amount\n2026-04-08,"1.00\n', "Line 2 is no CSV that can be read"),
    ],
)
def test_what_is_no_table_is_refused_in_a_sentence(data: bytes, sentence: str) -> None:
    with pytest.raises(StatementError, match=sentence):
        csv_statement.read_csv(data, ReadOptions(account=IBAN))


def test_a_row_that_cannot_be_read_is_put_aside_with_its_reason() -> None:
    rows = ("today,1.00,EUR,a", "2026-04-08,one,EUR,a", "2026-04-08,1.00,XXQ,a", "2026-04-08,1.001,EUR,a")
    text = "\n".join(("date,amount,currency,text", *rows))
    statement = csv_statement.read_csv(text.encode(), ReadOptions(account=IBAN, decimal="."))
    assert [(row.place, str(row.error)) for row in statement.bad] == [
        ("line 2", "'today' is no day; write it like 2026-03-31 or 31.03.2026."),
        ("line 3", "'one' is no amount."),
        ("line 4", "'XXQ' is no currency."),
        ("line 5", "1001/1000 EUR is not a whole number of minor units."),
    ]


@pytest.mark.django_db
def test_an_amount_that_no_column_holds_is_put_aside_and_the_others_are_booked() -> None:
    invoice = march(a_lab())
    imported(
        (
            "date,amount,currency,text\n"
            "2026-04-08,99999999999999999999.00,EUR,a slip\n"
            f"2026-04-08,20.00,EUR,{reference(invoice)}\n"
        ).encode()
    )
    (row,) = RefusedEntry.objects.all()
    assert (row.place, row.reason) == ("line 2", "It is beyond 10000000000000.00 EUR.")
    assert stands(invoice) == ("paid", "20.00", "0.00")


@pytest.mark.django_db
def test_the_command_says_what_came_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    invoice = march(a_lab())
    file = tmp_path / "april.csv"
    file.write_text(
        ENGLISH + f"2026-04-08,20.00,EUR,Vision Lab,DE1,{reference(invoice)},B1\n2026-04-08,1.00,EUR,,,?,B2\n"
    )
    call_command("import_statement", str(file), "--dry-run")
    assert capsys.readouterr().out == (
        "Nothing was kept; it would be: 2 new, 0 known before; 1 booked, 1 to be looked at.\n"
    )
    assert not Transfer.objects.exists()
    call_command("import_statement", str(file), "--json")
    result = json.loads(capsys.readouterr().out)
    assert [(row["amount"], row["state"]) for row in result["transfers"]] == [
        ("20.00", "booked"),
        ("1.00", "waiting"),
    ]
    assert stands(invoice) == ("paid", "20.00", "0.00")
    call_command("import_statement", str(file))
    assert capsys.readouterr().out == "0 new, 2 known before; 0 booked, 0 to be looked at.\n"


@pytest.mark.django_db
def test_money_that_went_or_never_came_pays_no_invoice_though_it_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    invoice = march(a_lab())
    named = reference(invoice)
    rows = [
        f"2026-04-08;20.00;EUR;{named};C;{state}" for state in ("declined", "reverted", "returned", "pending")
    ]
    file = tmp_path / "april.csv"
    file.write_text(
        "\n".join(("date;amount;currency;text;D/C;state", *rows, f"2026-04-08;20.00;EUR;{named};D;booked"))
    )
    call_command("import_statement", str(file))
    assert capsys.readouterr().out == (
        "1 new, 0 known before; 0 booked, 0 to be looked at; 1 that left the account set aside; 3 in quarantine; "
        "1 not booked by the bank yet.\n"
    )
    assert stands(invoice) == ("due", "0.00", "20.00")


@pytest.mark.django_db
def test_what_a_file_does_not_say_is_said_with_options(tmp_path: Path) -> None:
    invoice = march(a_lab())
    file = tmp_path / "april.csv"
    file.write_text(
        f"date;amount;currency;Vermerk;Lauf;Filiale\n04/08/2026;20.00;EUR;{reference(invoice)};durch;Mitte\n"
    )
    options = [
        "--column",
        "Vermerk=text",
        "--column",
        "lauf=state",
        "--column",
        "Filiale=ignore",
        "--word",
        "Durch=booked",
    ]
    with pytest.raises(RefusedError, match="Whether the day or the month stands first"):
        call_command("import_statement", str(file), *options)
    assert not Transfer.objects.exists()
    with pytest.raises(RefusedError, match="is given as NAME=MEANING, not as 'Vermerk'"):
        call_command("import_statement", str(file), "--column", "Vermerk")
    call_command("import_statement", str(file), *options, "--dates", "mdy")
    assert stands(invoice) == ("paid", "20.00", "0.00")


@pytest.mark.django_db
def test_without_an_account_a_csv_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "april.csv"
    file.write_text(ENGLISH)
    with pytest.raises(RefusedError, match="Say of which account the file is"):
        call_command("import_statement", str(file))


@pytest.mark.django_db(transaction=True)
def test_the_same_file_by_two_at_once_books_once() -> None:
    invoice = march(a_lab())
    data = camt(*(Line(amount="1.00", text="INV-2026-0001", name=f"B{n}") for n in range(8)))
    troubles: list[BaseException] = []

    def work() -> None:
        try:
            imported(data)
        except BaseException as error:  # noqa: BLE001 - told below
            troubles.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert troubles == []
    assert stands(invoice) == ("due", "8.00", "12.00")
    assert Payment.objects.count() == Transfer.objects.count() == 8
