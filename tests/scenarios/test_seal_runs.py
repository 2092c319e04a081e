"""Op asks for months to be sealed, and a worker does it; at night it goes by itself, and the files are looked at."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from billing.models import SealedMonth, SealKind, SealRun
from billing.proof import checks
from billing.sealed_months import drop, file_checks, seal, seal_runs
from billing.sealed_months.errors import SealError
from portal.core.audit.models import AuditEntry
from portal.core.outbox.models import OutboxMessage
from tests.builders import at
from tests.sealed_march import MARCH, NOW, enter_march, sealed

pytestmark = pytest.mark.django_db
NIGHT = at("2031-06-01 02:00")


@pytest.fixture(autouse=True)
def directory(settings: Any, tmp_path: Path) -> Path:
    settings.CLUSTERTAB_SEALED_MONTHS = tmp_path / "sealed"
    return tmp_path / "sealed"


@pytest.fixture
def march() -> None:
    enter_march()
    checks.prove(moment=NOW)


def request_run(kind: SealKind = SealKind.SEAL, by: str = "op@example.org") -> SealRun:
    return seal_runs.request_run(month=MARCH, kind=kind, by=by, moment=NOW)


def perform_run(moment: datetime = NOW) -> SealRun | None:
    return seal_runs.perform_next(clock=lambda: moment)


def test_op_asks_twice_and_the_month_is_sealed_once_in_op_s_name(march: None) -> None:
    assert request_run().pk == request_run(by="oda@example.org").pk
    message = OutboxMessage.objects.get(task="billing.sealed_months.tasks.seal_runs_due")
    assert message.kwargs == {}
    run = perform_run()
    assert run is not None
    assert (run.ended_at, run.error) == (NOW, "")
    assert SealedMonth.objects.get().month == MARCH
    entry = AuditEntry.objects.get(table="billing_sealedmonth")
    assert (entry.operation, entry.who) == ("insert", "op@example.org")
    assert perform_run() is None
    with pytest.raises(SealError, match="2026-03 is sealed already"):
        request_run()


def test_a_worker_that_dies_leaves_the_run_to_the_next(march: None, monkeypatch: pytest.MonkeyPatch) -> None:
    request_run()
    whole = seal.seal_month

    def dies(**values: Any) -> None:
        whole(**values)
        raise MemoryError

    monkeypatch.setattr(seal, "seal_month", dies)
    with pytest.raises(MemoryError):
        perform_run()
    monkeypatch.setattr(seal, "seal_month", whole)
    run = perform_run()
    assert run is not None
    assert (run.attempts, run.error) == (2, "")
    assert SealedMonth.objects.count() == 1
    request_run(SealKind.UNSEAL)
    monkeypatch.setattr(SealRun, "save", saves_once(SealRun.save))
    with pytest.raises(MemoryError):
        perform_run()
    monkeypatch.undo()
    assert not SealedMonth.objects.exists()
    run = perform_run()
    assert run is not None
    assert (run.kind, run.error) == (SealKind.UNSEAL, "")


def saves_once(save: Callable[..., None]) -> Callable[..., None]:
    calls: list[int] = []

    def saves(run: SealRun, **values: Any) -> None:
        calls.append(1)
        if len(calls) > 1:
            raise MemoryError
        save(run, **values)

    return saves


def test_over_what_kills_every_worker_the_run_is_given_up_and_says_so(
    march: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    request_run()

    def dies(**_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(seal, "seal_month", dies)
    for _ in range(seal_runs.ATTEMPTS):
        with pytest.raises(MemoryError):
            perform_run()
    run = perform_run()
    assert run is not None
    assert run.error == "It was begun 5 times and never ended: the worker's log says why. Ask again."
    assert request_run().pk != run.pk


def test_what_cannot_be_sealed_is_refused_at_once_and_what_can_no_more_when_its_turn_comes(
    march: None, settings: Any
) -> None:
    with pytest.raises(SealError, match="2026-03 is not sealed"):
        request_run(SealKind.UNSEAL)
    settings.CLUSTERTAB_SEAL_AFTER_MONTHS = 18
    with pytest.raises(SealError, match="It was changed last on 2030-01-01"):
        request_run()
    settings.CLUSTERTAB_SEAL_AFTER_MONTHS = 12
    request_run()
    sealed()  # at the shell
    with pytest.raises(SealError, match=r"op@example\.org requested another action for 2026-03"):
        request_run(SealKind.UNSEAL)
    settings.CLUSTERTAB_SEALED_MONTHS = None
    with pytest.raises(SealError, match="SEALED_MONTHS_DIRECTORY is not set"):
        seal_runs.request_ready(by="op@example.org", moment=NOW)
    run = perform_run()
    assert run is not None
    assert run.error == "SEALED_MONTHS_DIRECTORY is not set, so there are no sealed months."


def test_all_months_that_are_ready_are_asked_for_at_once(march: None) -> None:
    runs = seal_runs.request_ready(by="op@example.org", moment=NOW)
    assert [run.month for run in runs] == [MARCH]
    assert seal_runs.request_ready(by="op@example.org", moment=NOW) == runs
    perform_run()
    assert seal_runs.request_ready(by="op@example.org", moment=NOW) == []


def test_at_night_months_that_are_ready_are_sealed_if_the_setting_says_so(march: None, settings: Any) -> None:
    assert seal_runs.request_at_night(moment=NIGHT) is None
    settings.CLUSTERTAB_SEAL_AT_NIGHT = True
    assert seal_runs.request_at_night(moment=NIGHT + timedelta(hours=10)) is None
    run = seal_runs.request_at_night(moment=NIGHT)
    assert run is not None
    assert seal_runs.request_at_night(moment=NIGHT) is None  # one after another
    SealRun.objects.update(ended_at=NIGHT, error="The sums differ.")
    assert seal_runs.request_at_night(moment=NIGHT + timedelta(hours=1)) is None
    assert seal_runs.request_at_night(moment=NIGHT + timedelta(days=1)) is not None
    perform_run()
    assert SealedMonth.objects.get().month == MARCH
    assert {entry.who for entry in AuditEntry.objects.filter(table="billing_sealedmonth")} == {"each night"}


def test_the_night_finds_a_file_that_is_gone_or_changed_and_that_it_was_brought_back(
    march: None, directory: Path
) -> None:
    sealed()
    path = directory / "2026-03" / "records.parquet"
    content = path.read_bytes()
    assert file_checks.check_at_night(moment=NIGHT) == []
    assert SealedMonth.objects.get().checked_at == NIGHT
    path.unlink()
    assert file_checks.check_at_night(moment=NIGHT + timedelta(hours=1)) == []  # once a night
    (damage,) = file_checks.check_at_night(moment=NIGHT + timedelta(days=1))
    assert damage == "2026-03/records.parquet is missing"
    assert SealedMonth.objects.get().damages == [damage]
    path.write_bytes(content[:-1] + b"!")
    (damage,) = file_checks.check_at_night(moment=NIGHT + timedelta(days=2))
    assert damage == "2026-03/records.parquet was changed: its SHA-256 is another one"
    path.write_bytes(content)
    request_run(SealKind.CHECK)
    perform_run(NIGHT + timedelta(days=2, hours=9))
    assert SealedMonth.objects.get().damages == []


def test_a_check_by_hand_takes_no_turn_of_the_night(march: None, directory: Path) -> None:
    sealed()
    request_run(SealKind.CHECK)
    perform_run(NIGHT - timedelta(minutes=5))
    (directory / "2026-03" / "records.parquet").unlink()
    assert file_checks.check_at_night(moment=NIGHT) == ["2026-03/records.parquet is missing"]
    assert SealedMonth.objects.get().night == NIGHT.date()


def test_where_the_setting_is_gone_the_night_says_so_of_every_month(march: None, settings: Any) -> None:
    sealed()
    settings.CLUSTERTAB_SEALED_MONTHS = None
    damages = ["SEALED_MONTHS_DIRECTORY is not set, so there are no sealed months."]
    assert file_checks.check_at_night(moment=NIGHT) == damages
    assert SealedMonth.objects.get().damages == damages


@pytest.mark.django_db(transaction=True)
def test_two_workers_at_once_and_one_of_them_seals(monkeypatch: pytest.MonkeyPatch) -> None:
    enter_march()
    checks.prove(moment=NOW)
    request_run()
    begun, may_end, calls = threading.Event(), threading.Event(), []
    whole = seal.seal_month

    def slowly(**values: Any) -> Any:
        calls.append(values["month"])
        begun.set()
        assert may_end.wait(20)
        return whole(**values)

    monkeypatch.setattr(seal, "seal_month", slowly)

    def work() -> None:
        try:
            perform_run()
        finally:
            connection.close()

    first = threading.Thread(target=work)
    first.start()
    assert begun.wait(20)
    assert perform_run() is None
    may_end.set()
    first.join(30)
    assert calls == [MARCH]
    run = SealRun.objects.get()
    assert (run.attempts, run.error, run.ended_at) == (1, "", NOW)
    assert SealedMonth.objects.count() == 1


def test_a_drop_that_finds_the_month_in_use_is_taken_up_again_and_fails_after_five_times(
    march: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed()
    monkeypatch.setattr(drop, "why_not", lambda _: None)
    request = partial(seal_runs.request_run, month=MARCH, kind=SealKind.DROP, by="op@lab.example", moment=NOW)
    with pytest.raises(SealError, match="replace all of them, on each machine, then confirm that"):
        request()
    request(all_processes_replaced=True)

    def is_in_use(**_: Any) -> None:
        raise SealError("in-use", month="2026-03")

    with monkeypatch.context() as used:
        used.setattr(drop, "drop_month", is_in_use)
        for _ in range(seal_runs.ATTEMPTS - 1):
            run = perform_run()
            assert run is not None
            assert run.ended_at is None
        run = perform_run()
    assert run is not None
    assert run.error == "Somebody reads or writes 2026-03 right now, such as a backup: try again later."
    request(all_processes_replaced=True)
    run = perform_run()
    assert run is not None
    assert run.error == ""
    assert SealedMonth.objects.get().dropped_at == NOW
