"""Sealed months in object storage: the bucket has the files, and the directory is a cache that may be lost."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from structlog.testing import capture_logs

from billing.models import SealedMonth
from billing.sealed_months import drop, file_checks, folder, start, unseal
from billing.sealed_months.errors import SealError
from billing.sealed_months.verify import prove_files
from clusters.models import Cluster, Quarantined, UsageRecord
from portal.core.tenants.models import Tenant
from tests.builders import a_cluster, a_job, a_person, a_plan, a_tenant, ingest
from tests.fakes.object_storage import BUCKET, Store, a_store
from tests.integration.operators import Operator
from tests.owner import as_owner
from tests.ports import a_free_port
from tests.sealed_march import MARCH, NOW, enter_march, rows, sealed
from tests.stories import close, prove
from tests.web.house import signed_in

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def server() -> Iterator[Store]:
    with a_store() as store:
        yield store


@pytest.fixture
def store(server: Store, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    for name, value in (("AWS_ACCESS_KEY_ID", "portal"), ("AWS_SECRET_ACCESS_KEY", "not-in-any-log")):
        monkeypatch.setenv(name, value)
    settings.CLUSTERTAB_SEALED_MONTHS = tmp_path / "sealed"
    settings.CLUSTERTAB_SEALED_MONTHS_BUCKET = BUCKET
    settings.CLUSTERTAB_SEALED_MONTHS_ENDPOINT = server.url
    server.empty()
    return server


@pytest.fixture
def cached(store: Store, tmp_path: Path) -> Path:
    return tmp_path / "sealed"


@pytest.fixture
def books() -> None:
    """March, whose job of the last night is billed in April, too."""
    enter_march()
    ingest(Cluster.objects.get(), as_of="2026-05-02")
    close("2026-04", on="2026-05-03")


def goes_away(settings: Any) -> None:
    settings.CLUSTERTAB_SEALED_MONTHS_ENDPOINT = f"http://127.0.0.1:{a_free_port()}"


def drop_march() -> None:
    drop.drop_month(month=MARCH, moment=NOW, all_processes_replaced=True)


def test_a_sealed_month_is_in_the_bucket_and_comes_back_where_the_cache_was_lost(
    store: Store, books: None, cached: Path
) -> None:
    sums, before = prove(), rows()
    files = list(sealed().files.all())
    stored = store.keys()
    assert {hashlib.sha256(store.read(key)).hexdigest() for key in stored} == {file.sha256 for file in files}
    assert len(stored) == len(files) == 6
    drop_march()
    shutil.rmtree(cached)
    assert prove_files().broken == []
    assert unseal.unseal_month(month=MARCH)["jobs"] == 3
    assert rows() == before
    assert prove() == sums


def test_usage_that_a_dropped_month_knows_is_found_without_its_cache(
    store: Store, books: None, cached: Path
) -> None:
    sealed()
    drop_march()
    shutil.rmtree(cached)
    known = a_job(job_id="3", source_key="pod/without/month", user="zoë", account="nobody",
                  started="2026-03-02 10:00", ended="2026-03-02 11:00")  # fmt: skip
    ingest(Cluster.objects.get(), known, as_of="2026-05-02")
    assert SealedMonth.objects.get().dropped_at is not None
    assert {path.name for path in cached.rglob("*.parquet")} == {"records.parquet", "names.parquet"}


@pytest.mark.django_db(transaction=True)
def test_pages_of_a_dropped_month_fetch_what_the_cache_lacks_of_their_tenant_alone(
    store: Store, books: None, cached: Path, settings: Any
) -> None:
    sealed()
    lab = Tenant.objects.get(slug="vision-lab")
    ann = signed_in(a_person(tenant=lab))
    drop_march()
    shutil.rmtree(cached)
    path = "/t/vision-lab/jobs/?period=2026-03-01"
    assert ">1</a>" in ann.get(path).content.decode()
    fetched = {f"{file.relative_to(cached / '2026-03')}" for file in cached.rglob("*.parquet")}
    own = f"tenant-{lab.pk}"
    assert fetched == {f"{own}/jobs.parquet", f"{own}/rated.parquet", "records.parquet"}
    shutil.rmtree(cached)
    goes_away(settings)
    answer = ann.get(path)
    assert (answer.status_code, "cannot be read here now" in answer.content.decode()) == (409, True)


def test_a_file_that_is_damaged_in_the_cache_alone_is_fetched_again(
    store: Store, books: None, cached: Path
) -> None:
    sealed()
    (cached / "2026-03" / "records.parquet").write_bytes(b"worn")
    assert prove_files().broken == []
    drop_march()
    assert prove_files().broken == []
    assert {path.name for path in cached.iterdir()} == {"2026-03"}


def test_an_object_that_was_changed_or_is_missing_is_named_and_not_loaded(
    store: Store, books: None, cached: Path
) -> None:
    sealed()
    drop_march()
    key = store.key("2026-03/records.")
    content = store.read(key)
    store.write(key, content.replace(b"a100", b"b100"))
    changed = f"2026-03/records.parquet was changed in {BUCKET}: its SHA-256 is another one"
    assert prove_files().broken == [changed]
    assert file_checks.check_month(month=MARCH, moment=NOW) == [changed]
    shutil.rmtree(cached)
    with pytest.raises(SealError, match=r"records\.parquet was changed in s3://tab/months: its SHA-256"):
        unseal.unseal_month(month=MARCH)
    store.delete(key)
    assert prove_files().broken == [f"2026-03/records.parquet is missing in {BUCKET}"]
    with pytest.raises(SealError, match=r"records\.parquet is missing in s3://tab/months"):
        unseal.unseal_month(month=MARCH)
    store.write(key, content)  # from a copy, which has no checksum with it
    assert file_checks.check_month(month=MARCH, moment=NOW) == []
    assert unseal.unseal_month(month=MARCH)["records"] == 4


def test_what_the_bucket_lacks_is_sent_from_the_directory_as_the_night_looks(
    store: Store, books: None, cached: Path, settings: Any
) -> None:
    settings.CLUSTERTAB_SEALED_MONTHS_BUCKET = ""
    sealed()
    settings.CLUSTERTAB_SEALED_MONTHS_BUCKET = BUCKET
    with pytest.raises(SealError, match=r"\.parquet is missing in s3://tab/months"):
        drop_march()
    assert file_checks.check_at_night(moment=NOW) == []
    assert len(store.keys()) == 6
    drop_march()


def test_a_store_that_is_away_leaves_the_month_unsealed_and_everything_else_goes_on(
    store: Store, books: None, settings: Any
) -> None:
    goes_away(settings)
    began = time.monotonic()
    with pytest.raises(SealError, match="s3://tab/months, which has the files of sealed months, is away"):
        sealed()
    assert not SealedMonth.objects.exists()
    settings.CLUSTERTAB_SEALED_MONTHS_ENDPOINT = store.url
    assert sealed().files.count() == 6
    goes_away(settings)
    shutil.rmtree(folder.directory())
    (broken,) = prove_files().broken
    assert broken.startswith("s3://tab/months, which has the files")
    (damage,) = file_checks.check_at_night(moment=NOW)
    assert SealedMonth.objects.get().damages == [damage]
    assert prove()
    assert time.monotonic() - began < 60
    settings.CLUSTERTAB_SEALED_MONTHS_ENDPOINT = store.url
    assert file_checks.check_at_night(moment=NOW) == []
    assert SealedMonth.objects.get().damages == []


def test_rows_of_a_dropped_month_wait_in_quarantine_while_the_store_is_away(
    store: Store, books: None, cached: Path, settings: Any
) -> None:
    sealed()
    drop_march()
    shutil.rmtree(cached)
    goes_away(settings)
    with capture_logs() as logs:
        start.warn_of_unreachable_files()
    assert logs == []  # which is not asked before anything is needed of it
    late = a_job(job_id="9", user="ben", started="2026-03-05 10:00", ended="2026-03-05 11:00")
    april = a_job(job_id="10", user="ben", started="2026-05-01 10:00", ended="2026-05-01 11:00")
    ingest(Cluster.objects.get(), late, april, as_of="2026-05-02")
    (waiting,) = Quarantined.objects.all()
    assert "s3://tab/months" in str(waiting.values)
    settings.CLUSTERTAB_SEALED_MONTHS_ENDPOINT = store.url
    ingest(Cluster.objects.get(), late, as_of="2026-05-02")
    assert UsageRecord.objects.filter(job_id="9").exists()
    assert SealedMonth.objects.get().dropped_at is not None
    assert not Quarantined.objects.filter(resolved_at=None).exists()


def test_unsealing_deletes_the_objects_but_never_those_that_a_backup_may_need(
    store: Store, books: None, cached: Path
) -> None:
    store.write("months/2026-03/records.0000.parquet", b"another database's")
    sealed()
    unseal.unseal_month(month=MARCH)
    assert store.keys() == ["months/2026-03/records.0000.parquet"]
    sealed()
    drop_march()
    kept = store.keys()
    unseal.unseal_month(month=MARCH)
    assert store.keys() == kept


def test_objects_that_are_left_since_the_store_was_away_are_deleted_by_the_next_call(
    store: Store, books: None, cached: Path, settings: Any
) -> None:
    sealed()
    goes_away(settings)
    with capture_logs() as logs:
        unseal.unseal_month(month=MARCH)
    assert [entry["event"] for entry in logs] == ["objects of an unsealed month left"]
    assert not SealedMonth.objects.exists()
    settings.CLUSTERTAB_SEALED_MONTHS_ENDPOINT = store.url
    assert len(store.keys()) == 6
    call_command("unseal_month", "2026-03", "--yes", "--json")
    assert store.keys() == []


def test_no_credential_is_in_a_sentence(store: Store, books: None, settings: Any) -> None:
    settings.CLUSTERTAB_SEALED_MONTHS_BUCKET = "s3://nobodys/months"
    with pytest.raises(SealError, match="NoSuchBucket") as refused:
        sealed()
    assert "not-in-any-log" not in str(refused.value)


@pytest.mark.django_db(transaction=True)
def test_killed_between_the_upload_and_the_mark_it_is_not_sealed_and_the_next_call_goes_on(
    store: Store, cached: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = a_cluster()
    labs = [
        a_tenant(f"lab-{n}", plan=a_plan(f"plan-{n}"), accounts=[(cluster, f"lab-{n}")]) for n in range(6)
    ]
    jobs = [
        a_job(job_id=lab.slug, account=lab.slug, started="2024-03-01 10:00", ended="2024-03-01 11:00")
        for lab in labs
    ]
    ingest(cluster, *jobs, as_of="2024-05-01")
    with as_owner() as owner:
        owner.execute("UPDATE clusters_usagerecord SET last_seen = '2024-05-01'")
    close("2024-03", on="2024-05-01", now="2024-05-01")
    for name, value in (
        ("SEALED_MONTHS_DIRECTORY", cached), ("SEALED_MONTHS_BUCKET", BUCKET),
        ("SEALED_MONTHS_ENDPOINT", store.url), ("SEAL_AFTER_MONTHS", "0"),
    ):  # fmt: skip
        monkeypatch.setenv(name, str(value))
    with Operator(database_url) as op:
        killed = op.is_killed_doing("seal_month", "2024-03", "--yes", count=lambda: len(store.keys()), at=1)
        assert killed
        assert not SealedMonth.objects.exists()
        op.does("seal_month", "2024-03", "--yes")
    files = SealedMonth.objects.get().files
    assert len(store.keys()) == files.count() == 13
    assert prove_files().broken == []
