"""Transfers are matched each on its own: what goes wrong with one is nothing to the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.core.management import call_command

from billing import tasks
from billing.bank_transfers import statement_import
from billing.wallets.batch import LeftOverError
from portal.schedule import SCHEDULE
from tests.owner import as_owner
from tests.statements import APRIL, Line, a_lab, camt, march, stands, transfers

BOTH = camt(
    Line(amount="6.66", text="INV-2026-0001", name="B1"), Line(amount="5.00", text="INV-2026-0001", name="B2")
)


@contextmanager
def a_database_that_refuses(amount: int) -> Iterator[None]:
    """Payments of that many cents, and only when their transaction commits: as constraints that are deferred do."""
    with as_owner() as cursor:
        cursor.execute(
            "CREATE FUNCTION test_refuses() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            f"IF NEW.amount = {amount} THEN RAISE EXCEPTION 'Not this one.'; END IF; RETURN NULL; END $$"
        )
        cursor.execute(
            "CREATE CONSTRAINT TRIGGER test_refuses AFTER INSERT ON billing_payment "
            "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION test_refuses()"
        )
    try:
        yield
    finally:
        with as_owner() as cursor:
            cursor.execute("DROP FUNCTION test_refuses CASCADE")


@pytest.mark.django_db(transaction=True)
def test_a_transfer_that_fails_at_its_commit_holds_up_none_behind_it_and_is_tried_again() -> None:
    invoice = march(a_lab())
    with a_database_that_refuses(666):
        statement_import.import_statement(data=BOTH, name="april.xml", by="op", moment=APRIL, most=0)
        with pytest.raises(LeftOverError, match="Not this one"):
            tasks.match_transfers()
        assert [state for _, state, _ in transfers()] == ["new", "booked"]
        assert stands(invoice) == ("due", "5.00", "15.00")
    tasks.match_transfers()
    assert stands(invoice) == ("due", "11.66", "8.34")


@pytest.mark.django_db(transaction=True)
def test_a_statement_with_a_transfer_that_fails_is_kept_and_its_others_are_booked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    invoice = march(a_lab())
    with a_database_that_refuses(666):
        (tmp_path / "april.xml").write_bytes(BOTH)
        call_command("import_statement", str(tmp_path / "april.xml"))
    output = capsys.readouterr().out
    assert output.startswith("2 new, 0 known before; 1 booked, 0 to be looked at; 1 not matched yet")
    assert [state for _, state, _ in transfers()] == ["new", "booked"]
    assert stands(invoice) == ("due", "5.00", "15.00")


def test_what_no_page_matched_is_matched_by_the_schedule() -> None:
    """Not by the outbox, whose one transaction would hold every tenant of the file until the last is matched."""
    assert tasks.match_transfers.name in {value["task"] for value in SCHEDULE.values()}
