"""What a tenant wrote stays text when Ann opens the export in a spreadsheet; what is a number stays one."""

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import islice

import pytest

from billing.documents.csv import Cell, cell, rows_to_csv


@pytest.mark.parametrize(
    ("written", "exported"),
    [
        ("train-llama", "train-llama"),
        ('=HYPERLINK("http://evil.example")', '\'=HYPERLINK("http://evil.example")'),
        ("+1", "'+1"),
        ("-2", "'-2"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\t=1"),
        ("\r=1", "'\r=1"),
        ("  =1", "'  =1"),
        ("＝1", "'＝1"),
        ("a=b", "a=b"),
        ("", ""),
    ],
)
def test_a_job_name_never_runs_as_a_formula(written: str, exported: str) -> None:
    assert cell(written) == exported


@pytest.mark.parametrize(
    ("value", "exported"),
    [
        (-12, "-12"),
        (Decimal("-34.91"), "-34.91"),
        (Decimal("1E+3"), "1000"),
        (Decimal("0.0000001"), "0.0000001"),
        (date(2026, 10, 31), "2026-10-31"),
        (datetime(2026, 10, 31, 23, 59, 1, tzinfo=UTC), "2026-10-31T23:59:01+00:00"),
        (None, ""),
    ],
)
def test_numbers_and_dates_are_exported_as_they_are(value: Cell, exported: str) -> None:
    assert cell(value) == exported


def test_the_jobs_behind_a_line_come_as_rfc_4180() -> None:
    rows: list[list[Cell]] = [["7", 'say "hi", Ben', Decimal("-1.50")], ["8", "two\nlines", None]]
    exported = b"".join(rows_to_csv(["job", "name", "amount"], rows))
    assert exported == b'job,name,amount\r\n7,"say ""hi"", Ben",-1.50\r\n8,"two\nlines",\r\n'


def test_every_script_survives_the_export() -> None:
    exported = b"".join(rows_to_csv(["name"], [["Zoë 東京 Ω"], ["broken \ud800"]]))
    assert exported.decode() == "name\r\nZoë 東京 Ω\r\nbroken ?\r\n"


def test_a_project_without_jobs_still_has_its_header() -> None:
    assert b"".join(rows_to_csv(["job", "amount"], [])) == b"job,amount\r\n"


def test_a_large_export_is_sent_while_it_is_read() -> None:
    read = 0

    def jobs() -> Iterator[list[Cell]]:
        nonlocal read
        for read in range(1, 100_001):
            yield [read, "train"]

    first = b"".join(islice(rows_to_csv(["job", "name"], jobs()), 1))
    assert first.startswith(b"job,name\r\n1,train\r\n")
    assert 100 < read < 20_000
