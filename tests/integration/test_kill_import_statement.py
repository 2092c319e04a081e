"""Kill -9 while a statement is taken in, where no worker runs: the same command again finishes what it finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from billing.models import Payment, Transfer, TransferState
from tests.integration.operators import Operator
from tests.statements import Line, a_lab, camt, march, reference, stands

pytestmark = pytest.mark.usefixtures("transactional_db")

LINES = 40


def matched() -> int:
    return Transfer.objects.exclude(state=TransferState.NEW).count()


@pytest.mark.sample
def test_an_import_killed_and_run_again_leaves_nothing_unmatched(database_url: str, tmp_path: Path) -> None:
    invoice = march(a_lab())
    named = reference(invoice)
    lines = [
        Line(amount="0.25", reference=named, name=f"B{n}", iban="", text=f"part {n}") for n in range(LINES)
    ]
    file = tmp_path / "april.xml"
    file.write_bytes(camt(*lines))
    with Operator(database_url) as op:
        assert op.is_killed_doing("import_statement", file, count=Transfer.objects.count, at=LINES)
        left = LINES - matched()
        assert left > 0
        assert op.is_killed_doing("import_statement", file, count=matched, at=LINES - left + 1)
        op.does("import_statement", file)
    assert (Transfer.objects.count(), matched()) == (LINES, LINES)
    assert Payment.objects.count() == LINES
    assert stands(invoice) == ("due", "10.00", "10.00")
