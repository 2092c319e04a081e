"""Bank statements, camt.053 and CSV, from the file to the transfers."""

from __future__ import annotations

from pathlib import Path

import pytest

from billing.models import RefusedEntry
from tests.hostile.mangling import INPUTS, REPEATED, Mangler
from tests.hostile.shell import refusal
from tests.statements import Line, a_lab, camt, march, reference

pytestmark = [pytest.mark.django_db, pytest.mark.larger]

CSV = """Date;Amount;Currency;Payer;IBAN;Text;State;Reference
2026-04-08;20.00;EUR;Vision Lab;DE75512108001245126199;{reference};booked;a1
2026-04-09;-5.00;EUR;Power;DE75512108001245126199;bill;booked;a2
"""


@pytest.mark.parametrize("form", ["camt", "csv"])
def test_whatever_stands_in_a_statement_is_an_entry_a_reason_or_a_refusal(form: str, tmp_path: Path) -> None:
    name = reference(march(a_lab()))
    lines = (Line(amount="20.00", text=name, name="a1"), Line(amount="-5.00", name="a2"))
    whole = camt(*lines) if form == "camt" else CSV.format(reference=name).encode()
    chance, path, refused = Mangler(21), tmp_path / "april", 0
    for _ in range(INPUTS // 2):
        path.write_bytes(chance.spoil(whole))
        message = refusal("import_statement", str(path))
        refused += bool(message)
        assert REPEATED not in message
    assert 0 < refused < INPUTS // 2
    assert not [row.reason for row in RefusedEntry.objects.all() if REPEATED in row.reason]
