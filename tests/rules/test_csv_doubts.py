"""CSV statements that leave it open whether money came: nothing of that is booked, and a sentence says what to do."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from billing.bank_transfers import csv_statement
from billing.bank_transfers.entities import ReadOptions, StatementError
from tests.rules.test_csv_exports import IBAN, INVOICE, read


def refused(text: str, **options: Any) -> list[str]:
    """The sentences of quarantine, where nothing of the file is booked."""
    statement = csv_statement.read_csv(
        text.encode(), ReadOptions(account=IBAN, **{"currency": "EUR", **options})
    )
    assert statement.entries == ()
    return [str(row.error) for row in statement.bad]


DIRECTIONS = {
    "Soll/Haben": ("Haben", "Soll"),
    "D/C": ("C", "D"),
    "S/H": ("H", "S"),
    "Credit/Debit": ("Credit", "Debit"),
    "Sens": ("Crédit", "Débit"),
    "Direction": ("IN", "OUT"),
}


@pytest.mark.parametrize("name", DIRECTIONS)
def test_a_debit_without_a_minus_left_the_account(name: str) -> None:
    came, went = DIRECTIONS[name]
    text = f"date;amount;currency;text;{name}\n2026-04-08;50.00;EUR;a;{went}\n2026-04-08;20.00;EUR;b;{came}\n"
    assert [row[0] for row in read(text)] == [-5000, 2000]
    assert refused(f"date;amount;text;{name}\n2026-04-08;-20.00;a;{came}\n") == [
        f"It says {came!r} of '-20.00': whether it came or went is not certain."
    ]
    assert refused(f"date;amount;text;{name}\n2026-04-08;20.00;a;\n") == [
        "It does not say whether money came or went."
    ]
    with pytest.raises(StatementError, match="Whether 'sideways' says that money came or went is not known"):
        refused(f"date;amount;text;{name}\n2026-04-08;20.00;a;sideways\n")


def test_a_column_of_direction_under_a_name_that_nobody_knows_refuses_the_file_until_somebody_says_it() -> (
    None
):
    text = "date;amount;currency;text;Richtung\n2026-04-08;50.00;EUR;a;Ab\n2026-04-08;20.00;EUR;b;Zu\n"
    with pytest.raises(StatementError, match="not known what the column 'Richtung' means, where 'Ab' stands"):
        read(text)
    with pytest.raises(StatementError, match="cannot mean 'way'; it is one of booked_on, amount"):
        read(text, columns={"Richtung": "way"})
    columns = {"richtung": "direction"}
    with pytest.raises(StatementError, match="Whether 'Ab' says that money came or went is not known"):
        read(text, columns=columns)
    assert [row[0] for row in read(text, columns=columns, words={"Ab": "debit", "zu": "credit"})] == [
        -5000,
        2000,
    ]


@pytest.mark.parametrize(
    ("name", "cell"),
    [("Returned on", "2026-04-10"), ("Vermerk", "Storno 10.04.2026"), ("Remark", "Rückgabe AC04 MS03")],
)
def test_a_column_that_nobody_knows_may_say_of_some_rows_that_their_money_went_back(
    name: str, cell: str
) -> None:
    head = f"date;amount;currency;text;{name}\n"
    text = f"{head}2026-04-08;20.00;EUR;a;\n2026-04-08;50.00;EUR;{INVOICE};{cell}\n"
    with pytest.raises(StatementError, match=f"not known what the column '{name}' means, where '{cell}'"):
        read(text)
    assert [row[0] for row in read(text, columns={name: "ignore"})] == [2000, 5000]
    daily = f"{head}2026-04-08;20.00;EUR;a;2026-04-08T10:11:12Z\n2026-04-08;50.00;EUR;b;08.04.2026\n"
    assert [row[0] for row in read(daily)] == [2000, 5000]


def test_states_that_say_that_nothing_came_are_put_aside_and_unknown_ones_refuse_the_file() -> None:
    head = "date;amount;currency;text;state\n"
    words = ("reverted", "Declined", "FAILED", "returned", "Storniert")
    rows = "".join(f"2026-04-08;13.00;EUR;{INVOICE};{word}\n" for word in words)
    assert refused(head + rows) == [f"Its state is {word!r}: no money came of it." for word in words]
    with pytest.raises(StatementError, match="The state 'Odd' is not known: say with --word 'Odd=booked'"):
        refused(head + "2026-04-08;13.00;EUR;a;Odd\n")
    assert refused(head + "2026-04-08;13.00;EUR;a;Odd\n", words={"odd": "failed"})
    statement = csv_statement.read_csv(
        f"{head}2026-04-08;13.00;EUR;a;\n2026-04-08;15.00;EUR;b;Completed\n2026-04-08;9.00;EUR;c;Pending\n".encode(),
        ReadOptions(account=IBAN),
    )
    assert [entry.amount for entry in statement.entries] == [1500]
    assert ([str(row.error) for row in statement.bad], statement.pending) == (
        ["It does not say whether it is booked, as other rows do."],
        1,
    )


def test_a_file_without_what_the_payer_wrote_is_refused() -> None:
    with pytest.raises(StatementError, match="No column is known to hold what the payer wrote"):
        read("date;amount;currency\n2026-04-08;20.00;EUR\n")
    text = "date;amount;currency;Vermerk\n2026-04-08;20.00;EUR;INV-2026-0001\n"
    assert read(text, columns={"Vermerk": "text"})[0][4] == INVOICE


def test_two_columns_of_money_have_to_agree_with_each_other_and_with_the_amount() -> None:
    head = "date;text;debit;credit;amount\n"
    assert refused(head + "2026-04-08;a;50.00;50.00;\n2026-04-08;a;;;50.00\n2026-04-08;a;;-5.00;\n") == [
        "It has to have an amount either below money in or below money out.",
        "It has to have an amount either below money in or below money out.",
        "'-5.00' came: less than nothing cannot come.",
    ]
    assert refused(head + "2026-04-08;a;;50.00;40.00\n") == ["Its amount '40.00' is not what came or went."]


@pytest.mark.parametrize(
    ("rows", "days"),
    [
        (["04/08/2026", "04/30/2026"], ["2026-04-08", "2026-04-30"]),
        (["04/08/2026", "30/08/2026"], ["2026-08-04", "2026-08-30"]),
        (["20260408", "2026-04-30T10:11:12Z"], ["2026-04-08", "2026-04-30"]),
    ],
)
def test_days_are_read_as_the_whole_file_leaves_no_doubt(rows: list[str], days: list[str]) -> None:
    text = "date;amount;currency;text\n" + "".join(f"{day};1.00;EUR;a\n" for day in rows)
    assert [row[2] for row in read(text)] == days


def test_days_in_doubt_are_refused_until_their_order_is_said() -> None:
    text = "date;amount;currency;text\n04/08/2026;1.00;EUR;a\n"
    with pytest.raises(
        StatementError, match="stands first in 04/08/2026 is not certain: say it with --dates dmy"
    ):
        read(text)
    assert [read(text, dates=order)[0][2] for order in ("dmy", "mdy")] == ["2026-08-04", "2026-04-08"]


def test_a_row_that_a_comma_in_its_text_broke_is_put_aside() -> None:
    assert refused("date,amount,text\n2026-04-08,1,234.00,INV\n") == [
        "It has more cells than there are columns."
    ]


def test_of_a_file_about_several_accounts_the_named_one_is_read() -> None:
    head, other = "Auftragskonto;Buchungstag;Betrag;Waehrung;Verwendungszweck\n", "DE02500105170137075030"
    rows = f"{other};08.04.2026;50,00;EUR;a\n{IBAN};08.04.2026;20,00;EUR;b\n"
    assert [row[0] for row in read(head + rows)] == [2000]
    with pytest.raises(StatementError, match=f"This is a statement of {other}, and {IBAN} is asked for"):
        read(head + rows.splitlines(keepends=True)[0])


def test_a_payer_may_write_what_stands_in_rows_of_balances() -> None:
    """Only a row that names nobody says how much there is; where no column could, somebody looks at it."""
    text = (
        "date;payer;text;amount;currency\n2026-04-08;Vision Lab;Closing balance;50.00;EUR\n"
        "2026-04-08;Endsaldo;RE-1;20.00;EUR\n2026-04-08;;Closing balance;1070.00;EUR\n"
    )
    assert [row[0] for row in read(text)] == [5000, 2000]
    assert refused("date;text;amount\n2026-04-08;Closing balance;50.00\n") == [
        "It may be a balance, or a payment with those words: no column says who paid."
    ]


def test_a_reversal_is_for_people_to_book() -> None:
    text = "date;amount;currency;text;type\n2026-04-08;20.00;EUR;a;Payment Reversal\n"
    (entry,) = csv_statement.read_csv(text.encode(), ReadOptions(account=IBAN)).entries
    assert entry.reversal


def test_no_combination_of_columns_books_money_that_a_word_says_did_not_come() -> None:
    directions = {"": 1, "C": 1, "D": -1, "memo": 0}
    states = {"": 1, "booked": 1, "failed": 0, "pending": 0}
    for (way, sign), (state, counts), minus in product(directions.items(), states.items(), ("", "-")):
        text = (
            "date;amount;currency;text"
            + (";D/C" if way else "")
            + (";state" if state else "")
            + f"\n2026-04-08;{minus}50.00;EUR;a"
            + (f";{way}" if way else "")
            + (f";{state}" if state else "")
            + "\n"
        )
        entries = csv_statement.read_csv(text.encode(), ReadOptions(account=IBAN)).entries
        came = sign == 1 and counts == 1 and not minus
        assert ([entry.amount for entry in entries if entry.amount > 0] == [5000]) is came, text
