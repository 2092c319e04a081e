"""Op decides on a debit and its transfer while a worker matches the same two: one waits for the other, none fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from django.db import connection, transaction

from billing.bank_transfers import manual_matching
from billing.models import Transfer
from tests.statements import APRIL, Line, a_lab, camt, imported, transfers

pytestmark = pytest.mark.django_db(transaction=True)


def somebody_waits_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")  # else a transaction sees what it saw first
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return bool(cursor.fetchone()[0])


def while_the_first_is_locked(act: Callable[[], object], came: Transfer, debit: Transfer) -> None:
    """As a worker does that has the transfer already, and asks for its debit next."""
    troubles: list[BaseException] = []

    def work() -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001 - told below
            troubles.append(error)
        finally:
            connection.close()

    op = threading.Thread(target=work)
    with transaction.atomic():
        Transfer.objects.select_for_update().get(pk=came.pk)
        op.start()
        until = time.monotonic() + 30
        while not somebody_waits_for_a_lock() and time.monotonic() < until:
            time.sleep(0.02)
        Transfer.objects.select_for_update(nowait=True).get(pk=debit.pk)
    op.join()
    assert troubles == []


def test_op_names_what_a_debit_takes_back_and_takes_that_back_again() -> None:
    a_lab()
    imported(camt(Line(amount="20.00", text="for GPUs", name="B1")))
    imported(camt(Line(amount="-20.00", text="recalled", name="B2", reversal=True), name="next"))
    came, debit = Transfer.objects.order_by("pk")

    def takes_back() -> object:
        return manual_matching.match_return(transfer=debit, original=came, by="op", moment=APRIL)

    def looks_again() -> object:
        return manual_matching.reopen_transfer(
            transfer=debit, reason="It was another's", by="op", moment=APRIL
        )

    while_the_first_is_locked(takes_back, came, debit)
    assert [state for _, state, _ in transfers()] == ["returned", "booked"]
    while_the_first_is_locked(looks_again, came, debit)
    assert [state for _, state, _ in transfers()] == ["waiting", "waiting"]
