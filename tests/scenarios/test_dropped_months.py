"""The rows of a sealed month leave the database: every sum stays, and late usage finds what was known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.utils import DatabaseError

from billing.models import (
    Invoice,
    ProofMark,
    RatedJob,
    RatedUsage,
    SealedMonth,
)
from billing.proof import checks
from billing.rating import engine
from billing.rating import ingest as usage_ingest
from billing.sealed_months import drop, parquet, seal, start, unseal
from billing.sealed_months.errors import SealError
from clusters.absent_records import MonthFilesError
from clusters.connectors.base import Reading, Row, UsageFact
from clusters.models import Account, Cluster, Quarantined, UsageRecord
from portal.core.tenants import ownership
from portal.core.tenants.models import Tenant
from tests.builders import a_job, at, busy, ingest
from tests.owner import as_owner
from tests.sealed_march import MARCH, NOW, enter_march, rows, sealed
from tests.stories import close, printed, prove

pytestmark = pytest.mark.django_db

APRIL = date(2026, 4, 1)
FIRST = {"job_id": "1", "user": "ben", "gpus": 4, "name": 'train\n"one", two', "started": "2026-03-02 10:00"}
MARCH_JOBS = (
    a_job(ended="2026-03-02 12:30", **FIRST),
    a_job(job_id="2", user="eve", account="speech", started="2026-03-31 20:00", ended="2026-04-01 04:00"),
    a_job(job_id="3", source_key="pod/without/month", user="zoë", account="nobody", started="2026-03-02 10:00",
          ended="2026-03-02 11:00"),
    a_job(job_id="4", user="ben", state="CANCELLED", started="2026-03-04 10:00", ended="2026-03-04 10:00"),
)  # fmt: skip
CORRECTED = a_job(ended="2026-03-02 14:30", **FIRST)


@pytest.fixture(autouse=True)
def directory(settings: Any, tmp_path: Path) -> Path:
    settings.CLUSTERTAB_SEALED_MONTHS = tmp_path / "sealed"
    return tmp_path / "sealed"


@pytest.fixture
def books() -> None:
    """March, whose job of the last night is billed in April, too."""
    enter_march()
    read_through("2026-05-02")
    close("2026-04", on="2026-05-03")


def read_through(day: str) -> None:
    ingest(Cluster.objects.get(), as_of=day)


def dropped() -> SealedMonth:
    sealed()
    return drop.drop_month(month=MARCH, moment=NOW, all_processes_replaced=True)


def late(*rows: Row) -> Any:
    """What an import comes to after all was sealed."""
    return usage_ingest.ingest(
        cluster=Cluster.objects.get(), rows=rows, reading=Reading(), source="late", moment=at("2031-07-01")
    ).stored


def march() -> SealedMonth:
    return SealedMonth.objects.get(month=MARCH)


@pytest.mark.sample
def test_the_rows_leave_the_database_and_every_sum_stays(books: None) -> None:
    sums, before = prove(), rows()
    assert dropped().dropped_at == NOW
    assert not RatedJob.objects.exists()
    assert not UsageRecord.objects.exists()
    assert RatedUsage.objects.get().service_month == APRIL  # of a job of March, in the table of April
    assert prove() == sums
    proof = checks.prove(full=True)
    assert proof.holds, [check for check in proof.checks if check.broken]
    assert not ProofMark.objects.exists()
    again = drop.drop_month(month=MARCH, moment=at("2032-01-01"), all_processes_replaced=True)
    assert again.dropped_at == NOW
    assert drop.load_back(month=MARCH) == {"records": 4, "revisions": 0, "jobs": 3, "rated": 4}
    assert rows() == before
    assert prove() == sums
    assert march().dropped_at is None
    assert sum(drop.load_back(month=MARCH).values()) == 0


def test_unsealing_brings_the_rows_of_a_dropped_month_back(books: None, directory: Path) -> None:
    sums, before = prove(), rows()
    dropped()
    assert unseal.unseal_month(month=MARCH)["records"] == 4
    assert rows() == before
    assert prove() == sums
    assert list(directory.iterdir()) == [directory / "2026-03.set-aside-1"]


def test_replaying_the_files_of_a_dropped_month_adds_nothing_and_loads_nothing(books: None) -> None:
    dropped()
    before = rows()
    stored = late(a_job(ended="2026-03-02 11:00", **FIRST), *MARCH_JOBS)  # the first of two lines is history
    assert (stored.new, stored.revised, stored.unchanged, stored.quarantined) == (0, 0, 5, 0)
    assert rows() == before
    assert march().dropped_at is not None


def test_an_import_of_many_batches_starts_once_what_reads_the_files(
    books: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped()
    monkeypatch.setattr(usage_ingest, "BATCH", 1)
    started: list[parquet.Program] = []
    real = parquet.program

    @contextmanager
    def start_program(directory: Path) -> Iterator[parquet.Program]:
        with real(directory) as program:
            started.append(program)
            yield program

    monkeypatch.setattr(parquet, "program", start_program)
    assert late(*MARCH_JOBS).unchanged == len(MARCH_JOBS)
    assert len(started) == 1
    assert started[0].process.poll() is not None  # it ended with the import
    assert not started[0].rows.parent.exists()


def test_a_batch_whose_reader_of_files_was_killed_has_another(
    books: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped()
    monkeypatch.setattr(usage_ingest, "BATCH", 1)
    real, batches = parquet.Program.find, []

    def find(program: parquet.Program, file: Path, *, cluster: int) -> None:
        batches.append(program)
        if len(batches) == 2:
            program.process.kill()
            program.process.wait()
        real(program, file, cluster=cluster)

    monkeypatch.setattr(parquet.Program, "find", find)
    stored = late(*MARCH_JOBS)
    assert (stored.unchanged, stored.quarantined) == (len(MARCH_JOBS), 0)
    assert batches[0] is batches[1] is not batches[2] is batches[3]
    assert march().dropped_at == NOW


@pytest.mark.parametrize(
    ("fact", "new", "revised"),
    [
        (CORRECTED, 0, 1),
        (a_job(job_id="7", started="2026-03-05 10:00", ended="2026-03-05 11:00"), 1, 0),
        (a_job(job_id="8", source_key="pod/late", started="2026-03-05 10:00", ended="2026-03-05 11:00"), 1, 0),
        (a_job(job_id="3", source_key="pod/without/month", user="zoë", account="nobody",
               started="2026-03-02 10:00", ended="2026-03-02 11:30"), 0, 1),
    ],
)  # fmt: skip
def test_late_usage_of_a_dropped_month_corrects_as_if_it_never_was_sealed(
    books: None, fact: UsageFact, new: int, revised: int
) -> None:
    def story(seal_it: Callable[[], Any]) -> Any:
        with transaction.atomic():
            mark = transaction.savepoint()
            seal_it()
            stored = late(*MARCH_JOBS, fact)
            sums = prove()
            read_through("2026-06-02")
            close("2026-05", on="2026-06-03")
            invoices = Invoice.objects.issued().order_by("pk")
            assert revised == 0 or fact.account == "nobody" or invoices.count() > 3
            documents = [(str(one.tenant), one.number, one.total, printed(one)) for one in invoices]
            transaction.savepoint_rollback(mark)
        assert (stored.new, stored.revised) == (new, revised)
        return sums, documents

    assert story(dropped) == story(lambda: None)


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-7])])
def test_usage_of_a_month_whose_files_cannot_be_read_is_kept_aside_and_all_other_is_stored(
    books: None, directory: Path, harm: Callable[[Path], Any]
) -> None:
    dropped()
    records = directory / "2026-03" / "records.parquet"
    content = records.read_bytes()
    harm(records)
    april = a_job(job_id="9", started="2026-04-05 10:00", ended="2026-04-05 11:00")
    known = MARCH_JOBS[2]
    stored = late(CORRECTED, known, april)
    assert (stored.new, stored.revised, stored.quarantined) == (1, 0, 2)
    row = Quarantined.objects.get(source_key=CORRECTED.source_key)
    assert row.code == "sealed-month"
    assert (
        "The rows of its month, 2026-03, stand in the files of the sealed month, which cannot be read"
        in row.reason
    )
    records.write_bytes(content)
    assert late(known).unchanged == 1
    assert [row.source_key for row in Quarantined.objects.filter(resolved_at=None)] == [CORRECTED.source_key]
    assert late(CORRECTED).revised == 1
    assert not Quarantined.objects.filter(resolved_at=None).exists()


def test_no_program_writes_rows_of_a_dropped_month_whichever_it_is(books: None) -> None:
    dropped()
    record = ((2026 - 1970) * 12 + 2 << 40) + 77
    with (
        pytest.raises(
            DatabaseError, match="The rows of 2026-03 stand in the files of the sealed month alone"
        ),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(
            "INSERT INTO clusters_usagerecord SELECT (jsonb_populate_record(NULL::clusters_usagerecord,"
            " jsonb_build_object('id', %s::bigint, 'source_key', 'x@1772445600'))).*",
            [record],
        )


def test_usage_that_changes_its_owner_is_loaded_back_before_it_is_rated_again(books: None) -> None:
    dropped()
    account = Account.objects.get(name="vision")
    engine.rate_accounts([account.pk])
    assert march().dropped_at is not None  # nothing changed
    speech = Tenant.objects.get(slug="speech-lab")
    ownership.assign(account=account, tenant=speech, since=at("2026-03-02 11:00"))
    proof = checks.prove()
    (check,) = [check for check in proof.checks if check.name == checks.TERMS]
    assert check.broken == ["2026-03: load it back"]
    engine.rate_accounts([account.pk])
    assert march().dropped_at is None
    prove()
    assert RatedJob.objects.filter(tenant=speech, job_id="1").exists()


def test_a_change_from_today_on_leaves_a_dropped_month_where_it_is(books: None) -> None:
    dropped()
    account = Account.objects.get(name="vision")
    ownership.assign(account=account, tenant=Tenant.objects.get(slug="speech-lab"), since=at("2030-06-01"))
    engine.rate_accounts([account.pk])
    assert march().dropped_at is not None
    assert checks.prove().holds


def test_usage_is_not_rated_again_without_the_rows_of_a_month_that_it_concerns(
    books: None, directory: Path
) -> None:
    dropped()
    (directory / "2026-03" / "records.parquet").unlink()
    account = Account.objects.get(name="vision")
    ownership.assign(
        account=account, tenant=Tenant.objects.get(slug="speech-lab"), since=at("2026-03-02 11:00")
    )
    with pytest.raises(MonthFilesError, match=r"2026-03/records\.parquet is missing"):
        engine.rate_accounts([account.pk])


def test_what_a_job_used_in_a_later_month_that_is_dropped_too_is_loaded_back_with_it(books: None) -> None:
    more = a_job(job_id="5", account="speech", started="2026-04-05 10:00", ended="2026-04-05 11:00")
    ingest(Cluster.objects.get(), more, as_of="2026-06-02")
    close("2026-05", on="2026-06-03")
    sums = prove()
    sealed()
    with pytest.raises(SealError, match="It shares billing periods with 2026-04, which is not sealed"):
        drop.drop_month(month=MARCH, moment=NOW, all_processes_replaced=True)
    seal.seal_month(month=APRIL, moment=NOW, quiet_months=12)
    with pytest.raises(SealError, match="Jobs of 2026-03 used something in it: drop these months first"):
        drop.drop_month(month=APRIL, moment=NOW, all_processes_replaced=True)
    for month in (MARCH, APRIL):
        drop.drop_month(month=month, moment=NOW, all_processes_replaced=True)
    assert not RatedUsage.objects.exists()
    assert prove() == sums
    assert drop.load_back(month=MARCH) == {"records": 4, "revisions": 0, "jobs": 3, "rated": 5}
    assert prove() == sums
    assert late(*MARCH_JOBS).unchanged == 4
    longer = a_job(
        job_id="2", user="eve", account="speech", started="2026-03-31 20:00", ended="2026-04-01 05:00"
    )
    assert late(longer).revised == 1
    prove()
    with pytest.raises(SealError, match="2026-03 was changed since it was sealed"):
        drop.drop_month(month=MARCH, moment=NOW, all_processes_replaced=True)
    for month in (APRIL, MARCH):
        unseal.unseal_month(month=month)
    assert prove() != sums
    assert late(*MARCH_JOBS).revised == 1  # as before that
    assert {**prove(), "pending": sums["pending"]} == sums


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-7])])
def test_nothing_is_dropped_whose_files_are_not_as_they_were_sealed(
    books: None, directory: Path, harm: Callable[[Path], Any]
) -> None:
    sealed()
    before = rows()
    harm(next((directory / "2026-03").glob("tenant-*/jobs.parquet")))
    with pytest.raises(SealError, match=r"jobs\.parquet"):
        drop.drop_month(month=MARCH, moment=NOW, all_processes_replaced=True)
    assert rows() == before
    assert march().dropped_at is None


def test_nothing_is_dropped_that_was_described_anew_since_it_was_sealed(books: None) -> None:
    sealed()
    late(a_job(ended="2026-03-02 12:30", **{**FIRST, "name": "renamed"}))
    with pytest.raises(
        SealError, match="2026-03 was changed since it was sealed: unseal it, and seal it again"
    ):
        drop.drop_month(month=MARCH, moment=NOW, all_processes_replaced=True)
    assert UsageRecord.objects.filter(name="renamed").exists()


@pytest.mark.parametrize("batch", [1, drop.BATCH])
def test_nothing_is_dropped_of_which_a_row_was_changed_behind_the_programs_back(
    books: None, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    """Whether the files of tenants are compared one by one or together."""
    monkeypatch.setattr(drop, "BATCH", batch)
    sealed()
    before = rows()
    name = RatedJob.objects.get(job_id="2").name
    rename("another")
    with pytest.raises(SealError, match="2026-03 was changed since it was sealed"):
        drop.drop_month(month=MARCH, moment=NOW, all_processes_replaced=True)
    rename(name)
    assert rows() == before
    assert drop.drop_month(month=MARCH, moment=NOW, all_processes_replaced=True).dropped_at


def rename(name: str) -> None:
    with as_owner() as cursor:
        cursor.execute("ALTER TABLE billing_ratedjob_2026_03 DISABLE TRIGGER USER")
        cursor.execute("UPDATE billing_ratedjob_2026_03 SET name = %s WHERE job_id = '2'", [name])
        cursor.execute("ALTER TABLE billing_ratedjob_2026_03 ENABLE TRIGGER USER")


def test_a_month_that_is_not_sealed_is_not_dropped(books: None) -> None:
    with pytest.raises(SealError, match="2026-03 is not sealed"):
        drop.drop_month(month=MARCH, moment=NOW, all_processes_replaced=True)
    with pytest.raises(SealError, match="2026-03 is not sealed"):
        drop.load_back(month=MARCH)


def test_a_file_of_a_dropped_month_that_was_changed_is_named_by_the_proof(
    books: None, directory: Path
) -> None:
    from billing.sealed_months.verify import prove_files

    dropped()
    path = next((directory / "2026-03").glob("tenant-*/rated.parquet"))
    path.write_bytes(path.read_bytes().replace(b"charged", b"waived "))
    (text,) = prove_files().broken
    assert text.startswith(f"{path.relative_to(directory)} ")


def test_how_busy_a_job_of_a_dropped_month_was_finds_no_run(books: None) -> None:
    dropped()
    hours = late(busy("pod/without/month", "2026-03-02 10:00", "1800")).utilisation
    assert hours.changed == 0
    assert "pod/without/month" in " ".join(hours.sentences())


def test_a_process_that_starts_without_the_files_of_a_dropped_month_says_so_once(
    books: None, directory: Path, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    start.warn_of_unreachable_files()
    dropped()
    start.warn_of_unreachable_files()
    assert warnings(caplog) == []
    settings.CLUSTERTAB_SEALED_MONTHS = None
    start.warn_of_unreachable_files()
    settings.CLUSTERTAB_SEALED_MONTHS = directory
    (directory / "2026-03").rename(directory / "elsewhere")
    start.warn_of_unreachable_files()
    first, second = warnings(caplog)
    assert (first["event"], first["months"]) == ("dropped months out of reach", "2026-03")
    assert "Mount the volume of SEALED_MONTHS_DIRECTORY here" in first["hint"]
    assert [first["directory"], second["directory"]] == ["", str(directory)]


def warnings(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [record.msg for record in caplog.records if record.name == start.__name__]  # type: ignore[misc]
