"""What cannot be undone is confirmed: on a terminal by an answer, in a script by --yes."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

from billing.models import Invoice, InvoiceState, WriteOff
from portal.ops.cli import OperatorCommand
from tests.builders import a_cluster, a_job, a_plan, a_tenant, ingest
from tests.stories import close

pytestmark = pytest.mark.django_db

NUMBER = "INV-2026-0001"
VOID = (
    "INV-2026-0001 of Vision Lab over 2.00 USD becomes void: it is not to be paid any more, what a wallet paid of it "
    "goes back there, and its period is open again. Make it void? [y/N] "
)
LOSE = "2.00 USD of INV-2026-0001 of Vision Lab are given up. Go on? [y/N] "
EXPECT = "INV-2026-0001 of Vision Lab is due again, as far as it is not paid. Go on? [y/N] "


class Terminal(StringIO):
    """A person who answers."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def at_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    """March is issued, over 2.00, and commands are called as a shell does."""
    cluster = a_cluster(complete_through="2026-06-01")
    a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job())
    close("2026-03")
    monkeypatch.setattr(OperatorCommand, "_called_from_command_line", True)
    monkeypatch.setattr("portal.ops.schema.refuse_unmigrated", lambda: None)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(command: str, answer: StringIO, **options: Any) -> str:
        monkeypatch.setattr("sys.stdin", answer)
        stderr = StringIO()
        call_command(command, NUMBER, reason="The wrong lab.", stdout=StringIO(), stderr=stderr, **options)
        return stderr.getvalue()

    return run


@pytest.mark.parametrize("command", ["void_invoice", "write_off"])
@pytest.mark.parametrize(("answer", "code"), [(StringIO("yes\n"), 2), (Terminal("n\n"), 1)])
def test_nothing_is_done_unconfirmed(run: Any, command: str, answer: StringIO, code: int) -> None:
    with pytest.raises(SystemExit) as refused:
        run(command, answer)
    assert refused.value.code == code
    assert Invoice.objects.get().state == InvoiceState.ISSUED
    assert not WriteOff.objects.exists()


def test_an_invoice_becomes_void_after_an_answer(run: Any) -> None:
    assert run("void_invoice", Terminal("y\n")) == VOID
    assert Invoice.objects.get().state == InvoiceState.VOID


def test_a_write_off_and_its_taking_back_are_confirmed_each(run: Any) -> None:
    assert run("write_off", Terminal("y\n")) == LOSE
    assert WriteOff.objects.get().undone_at is None
    assert run("write_off", Terminal("y\n"), take_back=True) == EXPECT
    assert WriteOff.objects.get().undone_at is not None


@pytest.mark.parametrize("command", ["void_invoice", "write_off"])
def test_a_script_says_yes(run: Any, command: str) -> None:
    assert run(command, StringIO(), yes=True) == ""
    assert Invoice.objects.get().state == InvoiceState.VOID or WriteOff.objects.exists()
