"""The charges of all tenants as a file that a worker writes: whole or not at all, and deleted after some days."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from structlog.testing import capture_logs

from billing.documents import job_users
from billing.models import FocusExport, FocusExportPart, FocusFormat
from billing.reports import focus, focus_exports, focus_files, tasks
from billing.reports.focus_exports import FocusExportError
from portal.core.audit.models import AuditEntry
from portal.core.outbox.models import OutboxMessage
from portal.core.tenants.models import Tenant
from portal.queues import WAKE, queue_of
from portal.sentences import sentence
from tests.builders import at
from tests.scenarios.test_commands_operator import answer_of
from tests.scenarios.test_focus_of_all_tenants import charges_of, labs

pytestmark = pytest.mark.django_db
__all__ = ["labs"]  # the fixture

MARCH = date(2026, 3, 1)
NOW = at("2026-04-20 08:00")


def request(
    kind: FocusFormat = FocusFormat.CSV, *, by: str = "op@lab.example", moment: datetime = NOW
) -> FocusExport:
    return focus_exports.request_export(month=MARCH, kind=kind, by=by, moment=moment)


def perform(moment: datetime = NOW) -> FocusExport | None:
    return focus_exports.perform_next(clock=lambda: moment)


def written(kind: FocusFormat = FocusFormat.CSV, *, moment: datetime = NOW) -> FocusExport:
    request(kind, moment=moment)
    export = perform(moment)
    assert export is not None
    assert (export.error, export.ended_at) == ("", moment)
    return export


def content(export: FocusExport, *, by: str = "op@lab.example") -> bytes:
    return b"".join(focus_exports.open_file(export, by=by, moment=NOW))


def writes(change: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have that happen once while the next file is written, behind its first piece."""

    def pieces(rows: Iterable[list[str]]) -> Iterator[bytes]:
        monkeypatch.undo()
        whole = b"".join(focus_files.as_csv(rows))
        yield whole[:100]
        change()
        yield whole[100:]

    monkeypatch.setitem(focus_files.AS, "csv", pieces)


def test_a_file_is_written_in_pieces_as_the_command_writes_it_and_the_history_says_who(
    labs: list[Tenant], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(focus_exports, "PART", 500)
    monkeypatch.setattr(focus, "TENANTS", 1)
    export = request()
    message = OutboxMessage.objects.get(task="billing.reports.tasks.focus_exports_due")
    assert message.done_at is None
    assert request().pk == export.pk  # asked twice
    perform()

    export.refresh_from_db()
    assert (export.name, export.status) == ("focus-1.2-all-2026-03.csv", "final")
    assert (export.done, export.total) == (3, 3)
    assert content(export, by="eva@lab.example") == charges_of(*labs)
    assert (export.size, export.parts.count()) == (len(charges_of(*labs)), -(-len(charges_of(*labs)) // 500))
    history = AuditEntry.objects.of_table(FocusExport).order_by("id")
    assert [(entry.operation, entry.who) for entry in history] == [
        ("insert", "op@lab.example"),
        ("update", "op@lab.example"),
        ("update", "eva@lab.example"),
    ]
    assert perform() is None


def test_progress_is_seen_while_it_is_written(labs: list[Tenant], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(focus, "TENANTS", 2)
    seen: list[tuple[int, int]] = []
    make = focus.make_dataset

    def watched(*, progress: Callable[[int], None], **rest: Any) -> focus.Dataset:
        def told(done: int) -> None:
            progress(done)
            seen.append(FocusExport.objects.values_list("done", "total").get())

        return make(progress=told, **rest)

    monkeypatch.setattr(focus, "make_dataset", watched)
    written()
    assert seen == [(2, 3), (3, 3)]


def test_a_worker_that_dies_leaves_nothing_and_the_next_writes_the_same_file(
    labs: list[Tenant], monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies() -> None:
        raise KeyboardInterrupt

    export = request()
    writes(dies, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        perform()
    export.refresh_from_db()
    assert (export.started_at, export.ended_at, FocusExportPart.objects.count()) == (NOW, None, 0)
    with pytest.raises(FocusExportError, match="is still being written"):
        content(export)
    perform()
    export.refresh_from_db()
    assert (export.attempts, content(export)) == (2, charges_of(*labs))


def test_what_kills_five_workers_is_given_up_and_may_be_requested_again(labs: list[Tenant]) -> None:
    export = request()
    FocusExport.objects.update(attempts=focus_exports.ATTEMPTS)
    perform()
    export.refresh_from_db()
    assert export.error.startswith(
        "Its writing was begun 5 times and never ended: the worker's log says why."
    )
    with pytest.raises(FocusExportError) as refusal:
        content(export)
    assert sentence(refusal.value).startswith("There is no file of 2026-03: Its writing was begun 5 times")
    assert written().pk != export.pk


NO_ROOM = "The worker cannot write the file: No space left on device. Make room on its disk, then ask again."


def failure(kind: FocusFormat = FocusFormat.CSV) -> str:
    request(kind)
    export = perform()
    assert export is not None
    return export.error


def test_a_full_disk_is_told_in_words(labs: list[Tenant], monkeypatch: pytest.MonkeyPatch) -> None:
    def fills() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    writes(fills, monkeypatch)
    assert failure() == NO_ROOM


def test_a_disk_that_parquet_fills_is_told_in_words(
    labs: list[Tenant], monkeypatch: pytest.MonkeyPatch
) -> None:
    write = focus_files._write_parquet
    monkeypatch.setattr(
        focus_files, "_write_parquet", lambda rows, _, *rest: write(rows, Path("/dev/full"), *rest)
    )
    assert failure(FocusFormat.PARQUET) == NO_ROOM


def test_what_else_fails_names_no_disk(
    labs: list[Tenant], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuses() -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    after = "Ask again; if it fails again, the worker's log says more."
    writes(refuses, monkeypatch)
    assert failure() == f"The file could not be written: Permission denied. {after}"
    monkeypatch.setattr(focus_files, "ROOT", tmp_path)  # without the program
    with capture_logs() as logs:
        reason = "the program that writes Parquet failed"
        assert failure(FocusFormat.PARQUET) == f"The file could not be written: {reason}. {after}"
    assert [entry["event"] for entry in logs] == ["focus export not written"]


def test_a_worker_is_told_of_files_however_long_it_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(tasks.perform_focus_export, "apply_async", lambda **options: sent.append(options))
    request()
    tasks.focus_exports_due()
    assert sent == [{}]
    assert queue_of(tasks.perform_focus_export.name) != queue_of("billing.tasks.render_document")
    assert queue_of(tasks.forget_names_in_focus_exports.name) == WAKE


def test_one_format_of_a_month_at_a_time(labs: list[Tenant]) -> None:
    request()
    with pytest.raises(FocusExportError) as refusal:
        request(FocusFormat.PARQUET, by="eva@lab.example")
    assert sentence(refusal.value) == (
        "op@lab.example requested 2026-03 as CSV: wait until that is ready, then ask again."
    )
    perform()
    parquet = written(FocusFormat.PARQUET)
    assert (parquet.name, content(parquet)[:4]) == ("focus-1.2-all-2026-03.parquet", b"PAR1")


def forget_names() -> None:
    """As the outbox has it done after the last erasure's commit."""
    task = tasks.forget_names_in_focus_exports
    task(**OutboxMessage.objects.filter(task=task.name).latest("pk").kwargs)


@pytest.mark.django_db(transaction=True)
def test_a_file_that_was_begun_after_an_erasure_stays_until_the_next(labs: list[Tenant]) -> None:
    job_users.erase_users(Tenant.objects.get(slug="vision-lab"))
    export = written(moment=at("2031-06-01 02:00"))
    forget_names()
    assert b"ada" not in content(export)
    job_users.erase_users(Tenant.objects.get(slug="audio-lab"))
    forget_names()
    assert not FocusExport.objects.exists()


def test_a_file_is_not_written_anew_at_once_and_few_may_wait(labs: list[Tenant]) -> None:
    written()
    with pytest.raises(FocusExportError) as refusal:
        request(moment=at("2026-04-20 08:04"))
    assert sentence(refusal.value) == (
        "The file of 2026-03 was written less than 5 minutes ago: download it, or ask again after that time."
    )
    request(FocusFormat.PARQUET)
    perform()
    for month in range(1, 13):
        focus_exports.request_export(month=date(2025, month, 1), kind=FocusFormat.CSV, by="op", moment=NOW)
    with pytest.raises(FocusExportError) as refusal:
        request(moment=at("2026-04-20 08:05"))
    assert sentence(refusal.value) == (
        "12 files are still to be written: wait until one is ready, then ask again."
    )
    perform()
    assert request(moment=at("2026-04-20 08:05")).ended_at is None


def test_names_that_are_erased_are_in_no_file(labs: list[Tenant], monkeypatch: pytest.MonkeyPatch) -> None:
    def erases() -> None:
        job_users.erase_users(Tenant.objects.get(slug="vision-lab"))
        forget_names()

    first = written()
    assert b"ada" in content(first)
    export = request(moment=at("2026-04-20 09:00"))
    writes(erases, monkeypatch)
    perform()
    assert not FocusExport.objects.filter(pk=first.pk).exists()
    export.refresh_from_db()
    assert (export.started_at, export.ended_at, FocusExportPart.objects.count()) == (None, None, 0)
    perform()
    export.refresh_from_db()
    assert export.ended_at == NOW
    assert b"ada" not in content(export)


def files_left(moment: str) -> list[int]:
    focus_exports.forget_old(moment=at(moment))
    return list(FocusExport.objects.order_by("pk").values_list("pk", flat=True))


def test_files_are_deleted_after_seven_days_and_an_hour_after_they_were_written_anew(
    labs: list[Tenant],
) -> None:
    first, parquet = written(), written(FocusFormat.PARQUET)
    second = written(moment=at("2026-04-20 12:00"))

    assert files_left("2026-04-20 12:59") == [first.pk, parquet.pk, second.pk]
    assert files_left("2026-04-20 13:00") == [parquet.pk, second.pk]
    assert files_left("2026-04-27 07:59") == [parquet.pk, second.pk]
    assert files_left("2026-04-27 12:00") == []
    assert not FocusExportPart.objects.exists()


def test_a_file_that_could_not_be_stored_replaces_none(
    labs: list[Tenant], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(path: Path, mode: str = "r", *rest: Any) -> Any:
        if (path.name, mode) == ("charges", "rb"):
            raise OSError(errno.EIO, "Input/output error")
        return real(path, mode, *rest)

    real, good, later = Path.open, written(), at("2026-04-20 12:00")
    failed = request(moment=later)
    monkeypatch.setattr(Path, "open", fails)
    perform(later)
    monkeypatch.undo()
    failed.refresh_from_db()
    assert "Input/output error" in failed.error
    assert (failed.name, failed.status, failed.size) == ("", "", 0)
    assert files_left("2026-04-21 08:00") == [good.pk, failed.pk]
    assert content(good) == charges_of(*labs)


def test_who_acts_for_a_tenant_has_no_right_on_any_of_it(db: None) -> None:
    with connection.cursor() as cursor:
        for role in ("clustertab_portal", "clustertab_member", "clustertab_agent"):
            for table in ("billing_focusexport", "billing_focusexportpart"):
                cursor.execute(
                    "SELECT has_table_privilege(%s, %s, 'SELECT, INSERT, UPDATE, DELETE')", [role, table]
                )
                assert cursor.fetchone() == (False,), (role, table)


def test_the_command_writes_the_same_file(labs: list[Tenant], tmp_path: Path) -> None:
    answer_of("export_focus", "2026-03", tmp_path / "march.csv")
    assert (tmp_path / "march.csv").read_bytes() == content(written())
