"""A month that nothing changed for long is sealed: its rows stand in files, and come back as they were."""

from __future__ import annotations

import hashlib
import json
import resource
import shutil
from collections.abc import Callable
from datetime import date
from io import StringIO
from pathlib import Path
from typing import Any

import duckdb
import pytest
from django.core.management import call_command
from django.db import connection

from billing.models import CloseProof, JobUser, MonthProof, ProofMark, RatedJob, SealedMonth
from billing.proof import checks
from billing.sealed_months import parquet, readiness, seal, unseal
from billing.sealed_months.errors import SealError
from billing.sealed_months.rows_sql import KINDS
from billing.sealed_months.verify import NAME, prove_files
from billing.sealed_months.writer import number_users
from clusters.models import Cluster, UsageRecord
from portal.core.audit.models import AuditEntry
from portal.core.tenants.models import Tenant
from portal.ops import old_rows
from portal.ops.cli import RefusedError
from tests.builders import a_job, at, ingest
from tests.owner import as_owner
from tests.sealed_march import MARCH, NOW, enter_march, rows, sealed
from tests.stories import prove

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def directory(settings: Any, tmp_path: Path) -> Path:
    settings.CLUSTERTAB_SEALED_MONTHS = tmp_path / "sealed"
    return tmp_path / "sealed"


@pytest.fixture
def books() -> None:
    enter_march()


def lose_rows() -> None:
    """The month's rows are gone from the database: what dropping its partitions would do."""
    with as_owner() as owner:
        owner.execute("SET CONSTRAINTS ALL IMMEDIATE")
        for table in ("clusters_usagerecord", "billing_ratedjob", "billing_ratedusage"):
            owner.execute(f"DROP TABLE {table}_2026_03")


def state() -> Any:
    return next(one for one in readiness.list_months(moment=NOW, quiet_months=12) if one.month == MARCH)


def answer(*arguments: str) -> Any:
    out = StringIO()
    call_command(*arguments, "--json", stdout=out)
    return json.loads(out.getvalue())


def test_files_have_every_column_of_their_tables_but_those_that_the_database_computes() -> None:
    with connection.cursor() as cursor:
        for kind in KINDS:
            cursor.execute(
                "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
                " AND NOT attisdropped AND attgenerated = ''",
                [kind.table],
            )
            assert {name for (name,) in cursor.fetchall()} == set(kind.columns)


def test_a_sealed_month_has_a_file_for_each_kind_and_tenant_whose_sums_are_the_ledgers(
    books: None, directory: Path
) -> None:
    files = {file.path.partition("/")[2]: file for file in sealed().files.all()}
    vision, speech = (f"tenant-{pk}" for pk in Tenant.objects.order_by("pk").values_list("pk", flat=True))
    assert {path: file.rows for path, file in files.items()} == {
        "names.parquet": 1,
        "records.parquet": 4,
        f"{vision}/jobs.parquet": 2,
        f"{vision}/rated.parquet": 3,  # as it was, taken back, and as it is
        f"{speech}/jobs.parquet": 1,
        f"{speech}/rated.parquet": 1,
    }
    assert files[f"{vision}/rated.parquet"].sums == [["gpu", "charged", "36000"]]
    assert files[f"{speech}/rated.parquet"].sums == [["gpu", "charged", "14400"]]
    assert {path.name for path in directory.iterdir()} == {"2026-03"}
    assert {path.relative_to(directory) for path in directory.rglob("*") if path.is_file()} == {
        Path("2026-03") / path for path in files
    }
    history = AuditEntry.objects.filter(table="billing_sealedfile", operation="insert")
    assert {(entry.after or {})["sha256"] for entry in history} == {file.sha256 for file in files.values()}


def test_no_name_of_a_person_is_in_a_file_but_that_of_names(books: None, directory: Path) -> None:
    sealed()
    read = "SELECT * FROM read_parquet(?)"
    for path in directory.rglob("*.parquet"):
        text = str(duckdb.execute(read, [str(path)]).fetchall())
        assert ("zoë" in text) == (path.name == "names.parquet")
        assert "ben" not in text
        assert "eve" not in text


def test_users_of_superseded_revisions_have_numbers_too(books: None, directory: Path) -> None:
    vision = Tenant.objects.get(slug="vision-lab")
    with as_owner() as owner:
        owner.execute("SELECT clusters_ensure_month('2026-03-01')")
        owner.execute(
            "UPDATE clusters_usagerevision SET \"user\" = 'benjamin', superseded_month = '2026-03-01',"
            " superseded_at = '2026-03-03'"
        )
    sealed()
    read = "SELECT * FROM read_parquet(?)"
    (revision,) = duckdb.execute(
        'SELECT "user" FROM read_parquet(?)', [str(directory / "2026-03" / "revisions.parquet")]
    ).fetchall()
    assert revision == (JobUser.objects.get(tenant=vision, name="benjamin").pk,)
    assert "benjamin" not in str(
        duckdb.execute(read, [str(directory / "2026-03" / "names.parquet")]).fetchall()
    )


def test_a_month_whose_jobs_are_detached_is_not_sealed(books: None) -> None:
    with as_owner() as owner:
        owner.execute("SET CONSTRAINTS ALL IMMEDIATE")
        owner.execute("ALTER TABLE billing_ratedjob DETACH PARTITION billing_ratedjob_2026_03")
    with pytest.raises(SealError, match="Jobs of 2026-03 are detached"):
        sealed()


def test_a_month_that_is_written_to_after_its_proof_is_not_sealed(
    books: None, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def written(row: SealedMonth, within: tuple[int, int]) -> None:
        number_users(row, within)
        ProofMark.objects.create(month=MARCH)

    monkeypatch.setattr("billing.sealed_months.seal.number_users", written)
    with pytest.raises(SealError, match="Something of 2026-03 was written meanwhile: try again"):
        sealed()
    assert list(directory.iterdir()) == []


def test_files_that_this_database_did_not_seal_are_set_aside(books: None, directory: Path) -> None:
    other = directory / "2026-03" / "records.parquet"
    other.parent.mkdir(parents=True)
    other.write_bytes(b"another's")
    sealed()
    aside = directory / "2026-03.set-aside-1"
    assert (aside / "records.parquet").read_bytes() == b"another's"
    assert answer("unseal_month", "2026-03", "--yes")["set_aside"] == [aside.name]
    assert list(directory.iterdir()) == [aside]
    aside.rename(other.parent)
    assert answer("unseal_month", "2026-03", "--yes")["set_aside"] == [aside.name]
    assert list(directory.iterdir()) == [aside]


def test_files_that_a_killed_unsealing_left_are_deleted_by_the_next(books: None, directory: Path) -> None:
    sealed()
    shutil.copytree(directory / "2026-03", directory / "left")
    unseal.unseal_month(month=MARCH)
    (directory / "left").rename(directory / "2026-03")
    assert answer("unseal_month", "2026-03")["unsealed"] is False
    assert answer("unseal_month", "2026-03", "--yes")["set_aside"] == []
    assert list(directory.iterdir()) == []


def test_sealed_again_it_is_the_same_and_its_files_have_the_same_bytes(books: None, directory: Path) -> None:
    first = sealed()
    assert sealed().pk == first.pk
    digests = set(first.files.values_list("kind", "tenant", "sha256"))
    unseal.unseal_month(month=MARCH)
    assert list(directory.iterdir()) == []
    assert not SealedMonth.objects.exists()
    assert set(sealed().files.values_list("kind", "tenant", "sha256")) == digests


@pytest.mark.sample
def test_rows_that_are_gone_come_back_digit_for_digit(books: None) -> None:
    sums, before = prove(), rows()
    sealed()
    lose_rows()
    assert not RatedJob.objects.exists()
    loaded = unseal.unseal_month(month=MARCH)
    assert loaded == {"records": 4, "revisions": 0, "jobs": 3, "rated": 4}
    assert rows() == before
    assert prove() == sums
    assert not SealedMonth.objects.exists()


def test_a_person_is_erased_without_touching_a_file_and_comes_back_as_a_number(
    books: None, directory: Path
) -> None:
    sealed()
    content = {path: path.read_bytes() for path in directory.rglob("*.parquet")}
    assert old_rows.erase(kind="job-users", before=at("2026-05-01"), moment=NOW, reason="Yearly") == 2
    assert {path: path.read_bytes() for path in directory.rglob("*.parquet")} == content
    assert prove_files().broken == []
    before = rows()
    lose_rows()
    unseal.unseal_month(month=MARCH)
    assert rows() == before
    assert not UsageRecord.objects.filter(user__in=("ben", "eve")).exists()


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda path: path.unlink(), "2026-03/records.parquet is missing"),
        (lambda path: path.write_bytes(path.read_bytes()[:-7]), "2026-03/records.parquet has "),
        (
            lambda path: path.write_bytes(path.read_bytes().replace(b"a100", b"b100")),
            "2026-03/records.parquet was changed: its SHA-256 is another one",
        ),
    ],
)
def test_a_file_that_is_missing_cut_or_changed_is_named_and_nothing_is_loaded_from_it(
    books: None, directory: Path, harm: Callable[[Path], Any], said: str
) -> None:
    sealed()
    assert answer("prove")["checks"][-1] == {"name": NAME, "holds": True, "broken": []}
    harm(directory / "2026-03" / "records.parquet")
    (text,) = prove_files().broken
    assert text.startswith(said)
    with pytest.raises(SealError, match=said):
        unseal.unseal_month(month=MARCH)
    assert SealedMonth.objects.exists()
    out = StringIO()
    with pytest.raises(SystemExit):
        call_command("prove", stdout=out)
    assert "Every sum closes, but files of sealed months are not as they were" in out.getvalue()


def test_a_full_disk_leaves_the_month_unsealed_and_no_file_behind(books: None, directory: Path) -> None:
    kept = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, kept[1]))  # the program that writes has it, too
    try:
        with pytest.raises(SealError, match="The files of 2026-03 could not be written or read"):
            sealed()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, kept)
    assert list(directory.iterdir()) == []
    assert not SealedMonth.objects.exists()
    assert sealed().files.count() == 6


def test_what_was_changed_lately_or_is_not_billed_is_not_sealed(books: None) -> None:
    with pytest.raises(SealError, match=r"It was changed last on 2030-01-01: it may be sealed 18 months"):
        seal.seal_month(month=MARCH, moment=NOW, quiet_months=18)
    with pytest.raises(SealError, match="2026-02 has no usage records: there is nothing to seal"):
        seal.seal_month(month=date(2026, 2, 1), moment=NOW, quiet_months=12)
    a_job_more = a_job(job_id="9", submitted="2026-03-09 10:00", started="2026-03-09 10:00", ended=None,
                       state="RUNNING", seen_until="2026-03-09 12:00")  # fmt: skip
    ingest(Cluster.objects.get(), a_job_more, as_of="2026-04-02")
    prove()
    assert [str(blocker) for blocker in state().blockers] == [
        "1 of its jobs have not ended.",
        "Usage in it is not billed yet, or has no price.",
    ]
    with pytest.raises(SealError, match="1 of its jobs have not ended"):
        sealed()


def test_a_month_whose_close_proved_other_sums_is_not_sealed(books: None) -> None:
    proof = CloseProof.objects.get(tenant__slug="speech-lab")
    proof.sums["gpu"]["charged"] = "14401"
    proof.save()
    with pytest.raises(
        SealError, match="The sums of Speech Lab for March 2026 are not what its close proved"
    ):
        sealed()
    assert not SealedMonth.objects.exists()


@pytest.mark.sample
def test_a_late_fact_corrects_as_ever_and_the_month_says_that_it_was_changed_since(books: None) -> None:
    sealed()
    assert answer("seal_month")["months"][0]["state"] == "sealed"
    ingest(
        Cluster.objects.get(),
        a_job(job_id="7", user="ben", started="2026-03-05 10:00", ended="2026-03-05 11:00"),
    )
    checks.prove(moment=NOW)
    assert state().changed
    assert prove_files().broken == []


def test_an_import_that_began_before_the_sealing_and_ended_after_it_shows_as_a_change(books: None) -> None:
    sealed()
    assert not state().changed
    with as_owner() as owner:
        owner.execute("UPDATE clusters_usagerevision SET superseded_at = '2030-01-15'")
    assert state().changed


def test_a_month_without_records_of_its_own_is_not_listed(books: None) -> None:
    """A job of March ran into April, of which there is no other: April's usage is proved, without a record."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT clusters_ensure_records(month_number(extract(epoch FROM date '2026-04-01')::bigint))"
        )
    checks.prove(moment=NOW, full=True)
    assert MonthProof.objects.filter(month=date(2026, 4, 1)).exists()
    assert [one.month for one in readiness.list_months(moment=NOW, quiet_months=12)] == [MARCH]


def test_the_commands_say_first_what_they_would_do(books: None, directory: Path, settings: Any) -> None:
    checks.prove(moment=NOW)
    with pytest.raises(RefusedError, match="It was changed last on 2030-01-01"):
        answer("seal_month", "2026-03", "--yes")
    settings.CLUSTERTAB_SEAL_AFTER_MONTHS = -60  # stories import in 2030
    assert answer("seal_month", "2026-03")["state"] == "ready"
    assert not directory.exists()
    done = answer("seal_month", "2026-03", "--yes")
    assert (done["records"], done["files"], done["blockers"]) == (4, 6, [])
    assert answer("unseal_month", "2026-03")["unsealed"] is False
    assert prove_files().broken == []
    assert sum(answer("unseal_month", "2026-03", "--yes")["loaded"].values()) == 0
    with pytest.raises(RefusedError, match="2026-03 is not sealed"):
        answer("unseal_month", "2026-03", "--yes")


@pytest.mark.long
def test_rows_that_are_larger_than_the_memory_of_the_program_are_written_and_read_back(
    tmp_path: Path,
) -> None:
    digest = hashlib.sha256()
    with parquet.program(tmp_path) as program:
        with program.rows.open("wb") as stream:
            for number in range(1_500_000):
                row = f'"{number}","{number:0200d}",\n'.encode()
                stream.write(row)
                digest.update(row)
        assert program.rows.stat().st_size > 250 << 20  # bytes
        columns = {"id": "BIGINT", "name": "VARCHAR", "ended": "BIGINT"}
        assert program.write(tmp_path / "x.parquet", columns) == digest.hexdigest()
        assert program.sums(tmp_path / "x.parquet", "SELECT sum(id::HUGEINT) FROM file") == [
            ["1124999250000"]
        ]


def test_without_a_directory_no_month_is_sealed(books: None, settings: Any) -> None:
    settings.CLUSTERTAB_SEALED_MONTHS = None
    with pytest.raises(RefusedError, match="SEALED_MONTHS_DIRECTORY is not set"):
        answer("seal_month", "2026-03", "--yes")


def test_of_a_month_that_goes_on_no_last_change_is_told() -> None:
    enter_march()
    (march,) = readiness.list_months(moment=at("2026-03-20"), quiet_months=12)
    codes = [blocker.code for blocker in march.blockers]
    assert "not-over" in codes
    assert "changed-lately" not in codes
