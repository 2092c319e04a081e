"""*Reports* of a cluster over a dropped month: everybody's usage and nobody's, for Op, as they were before."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction

from billing.models import EfficiencySnapshot, OperatingCost, RatedJob, SealedFile
from billing.reports import cluster_efficiency, efficiency_snapshots, reporting, snapshots
from billing.reports.shapes import By
from billing.reports.waste import Kind
from billing.sealed_months import all_tenants_rows, drop
from clusters import absent_records, capacity
from clusters.absent_records import MOST, NotShownError, RowsInFilesError
from clusters.connectors.base import NodeSeen, NodeState
from clusters.models import Cluster, ClusterKind, Connection
from portal.core.outbox import outbox
from portal.core.outbox.models import OutboxMessage
from portal.core.tenants.models import Tenant, User
from portal.core.tenants.scope import acting_scope, tenant_scope
from portal.ops.cli import RefusedError
from tests import sealed_march
from tests.builders import a_cluster, a_job, a_person, an_operator, at, ingest
from tests.contracts.test_prometheus_tokens import OPTIONS
from tests.scenarios.real import run
from tests.sealed_march import MARCH, NOW, enter_march_and_may
from tests.stories import close
from tests.web.house import signed_in
from tests.web.test_dropped_months_pages import SENTENCE, UNREAD, content_of, dropped, refusal

pytestmark = pytest.mark.django_db(transaction=True)  # what is shown of files goes as a transaction ends

REPORTS = "/operator/reports/"
SPANS = ("from=2026-03-01&through=2026-03-31", "from=2026-03-05&through=2026-05-31")
MODELS = f"{REPORTS}models/?month=2026-03"
MARCH_FIRST, TEN = (int(at(f"2026-03-{time}").timestamp()) for time in ("01", "10 10:00"))
JOBS_OF_MARCH = {"1", "2", "3", "4", "70_0", "70_1", "70_2", "w", "l", "s"}


@pytest.fixture(autouse=True)
def directory(settings: Any, tmp_path: Path) -> Path:
    settings.CLUSTERTAB_SEALED_MONTHS = tmp_path / "sealed"
    return tmp_path / "sealed"


@pytest.fixture
def op(monkeypatch: pytest.MonkeyPatch) -> User:
    """A cluster whose nodes are known, with jobs that waited, ran long below their limit, and served a model."""
    with monkeypatch.context() as later:
        later.setattr(sealed_march, "sealed", lambda: None)
        enter_march_and_may()
    cluster = Cluster.objects.get()
    nodes = [NodeSeen(name="n1", gpu_model="a100", gpus=8, state=NodeState.UP)]
    capacity.observe(cluster, nodes, at("2026-03-01"))
    march = {"started": "2026-03-10 12:00", "ended": "2026-03-10 13:00"}
    ingest(
        cluster,
        a_job(job_id="w", gpus=2, submitted="2026-03-10 09:00", eligible=None, name="late", **march),
        a_job(job_id="l", time_limit=86_400, account="speech", user="eve", name="llama", **march),
        a_job(job_id="s", gpus=3, gpu_share=(1, 7), account="nobody", user="zoë", **march),
        as_of="2026-06-02",
    )
    for month in ("2026-03", "2026-04", "2026-05"):
        close(month, on="2026-06-03")
    Cluster.objects.update(kind=ClusterKind.PROMETHEUS)
    served = {**OPTIONS["tokens"], "served_by": {"large": "gpu1/speech/llama", "small": "gpu1/vision"}}
    Connection.objects.create(cluster=cluster, base_url="http://127.0.0.1:1", options={"tokens": served})
    OperatingCost.objects.create(
        amount=Decimal("1.50"), currency="USD", gpu_model="", valid_from="2026-01-01"
    )
    sealed_march.sealed()
    OutboxMessage.objects.all().delete()  # documents that are not written yet load their months back
    return an_operator()


def paths() -> list[str]:
    march, until_may = SPANS
    return [
        *(f"{REPORTS}?{march}&by={by.value}&top=5" for by in By),
        *(f"{REPORTS}?{until_may}&by={by.value}&top=5" for by in (By.TENANT, By.POD)),
        *(f"{REPORTS}csv?{span}&by=pod" for span in SPANS),
        *(f"{REPORTS}waste/{kind.value}/?{march}" for kind in Kind),
        MODELS,
    ]


def test_reports_of_a_cluster_say_of_a_dropped_month_what_they_said_before(op: User) -> None:
    before = {path: content_of(op, path) for path in paths()}
    told = b" ".join(before.values())
    for words in (b"unassigned", b"zo\xc3\xab", b">70_1</a>", b"/t/speech-lab/jobs/", b"Margin", b"70_2"):
        assert words.lower() in told.lower(), words
    assert b"llama" in before[f"{REPORTS}waste/time-limit/?{SPANS[0]}"]
    assert b"late" in before[f"{REPORTS}waste/idle-while-waiting/?{SPANS[0]}"]
    assert b"large" in before[MODELS]
    assert b"report it" not in told  # the sums of all rows are what the ledger holds
    dropped()
    for path, text in before.items():
        assert content_of(op, path) == text, path
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_class WHERE relname LIKE 'filed_%'")
        assert cursor.fetchone() == (0,)


def reported() -> list[Any]:
    march = ("report_cost", "gpu1", "--from", "2026-03-01", "--to", "2026-04-01")
    return [
        *(run(*march, "--by", by.value, "--top-jobs", 0 if by is By.POD else 3, "--margin") for by in By),
        run(*march, "--tenant", "vision-lab", "--by", "user"),
    ]


def test_the_command_reports_all_of_a_dropped_month_and_late_records_once(op: User, directory: Path) -> None:
    before = reported()
    dropped()
    SealedFile.objects.filter(kind="records").update(rows=MOST + 1)
    assert reported() == before
    longer = a_job(job_id="1", user="ben", gpus=4, started="2026-03-02 10:00", ended="2026-03-02 17:30")
    ingest(Cluster.objects.get(), longer, as_of="2026-06-02")
    late = reported()
    assert late != before
    for file in directory.glob("2026-03/records.parquet"):
        file.rename(file.with_suffix(".away"))
    with pytest.raises(RefusedError, match="2026-03"):
        reported()
    for file in directory.glob("2026-03/*.away"):
        file.rename(file.with_suffix(".parquet"))
    SealedFile.objects.filter(kind="records").update(rows=1)
    drop.load_back(month=MARCH)
    assert reported() == late


def test_what_a_worker_computes_of_files_is_what_it_computed_of_tables_and_names_their_jobs(
    op: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(efficiency_snapshots, "LARGE", 0)
    monkeypatch.setattr(snapshots, "HOURLY", 10**6)
    by_user, by_job = (f"{REPORTS}?{SPANS[0]}&by={by}&top=5" for by in ("user", "pod"))
    looked = [by_user, by_job, *(f"{REPORTS}waste/{kind}/?{SPANS[0]}" for kind in ("zero-use", "time-limit"))]
    tables = [_of_worker(op, path) for path in looked]
    dropped()
    assert [_of_worker(op, path) for path in looked] == tables  # computed before the month was dropped
    EfficiencySnapshot.objects.all().delete()
    assert [_of_worker(op, path) for path in looked] == tables
    assert all(b"As of" in text for text in tables)
    assert any(b">70_1</a>" in text for text in tables)
    assert absent_records.list_all() == [MARCH]


def _of_worker(op: User, path: str) -> bytes:
    content_of(op, path)
    outbox.drain()
    EfficiencySnapshot.objects.update(as_of=NOW, requested_at=None)
    return content_of(op, path)


def test_files_that_cannot_be_read_are_a_sentence_and_are_asked_for_once(
    op: User, monkeypatch: pytest.MonkeyPatch, directory: Path, tmp_path: Path
) -> None:
    dropped()
    (records,) = directory.glob("2026-03/records.parquet")
    records.rename(tmp_path / "away")
    for path in (paths()[0], f"{REPORTS}csv?{SPANS[0]}", MODELS):
        assert UNREAD in refusal(op, path), path
    monkeypatch.setattr(efficiency_snapshots, "LARGE", 0)
    assert UNREAD in refusal(op, paths()[0])
    assert not EfficiencySnapshot.objects.exists()
    (tmp_path / "away").rename(records)
    content_of(op, paths()[0])  # a worker is to compute it
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("django.conf.settings.CLUSTERTAB_SEALED_MONTHS", tmp_path / "nothing")
        outbox.drain()
    for _ in range(2):
        assert UNREAD in refusal(op, paths()[0])
        assert not OutboxMessage.objects.undone().filter(task__contains="efficiency").exists()
    assert b"large" not in content_of(op, f"{REPORTS}?from=2026-05-01&through=2026-05-31")


def test_what_is_asked_in_the_request_is_bounded(op: User, monkeypatch: pytest.MonkeyPatch) -> None:
    dropped()
    SealedFile.objects.filter(kind="records").update(rows=MOST + 1)
    days = f"{REPORTS}csv?{SPANS[0]}"
    assert b"vision-lab" in content_of(op, days)  # the month has many records, the cluster few of them
    with monkeypatch.context() as fewer:
        fewer.setattr("portal.web.reports.MOST", 1)
        assert SENTENCE in refusal(op, days)
    assert b"large" in content_of(op, MODELS)
    assert b"every 2s" in content_of(op, paths()[0])  # of more than a thousand a worker computes it
    outbox.drain()
    assert b"As of" in content_of(op, paths()[0])


def test_what_a_report_does_not_need_is_not_written_out_of_the_files(op: User) -> None:
    """A day of a cluster: no rows of another cluster, and none of other days."""
    gpu1, gpu2 = Cluster.objects.get(name="gpu1"), a_cluster("gpu2")
    april, days = int(at("2026-04-01").timestamp()), (at("2026-03-06"), at("2026-03-07"))
    begin, end = (int(day.timestamp()) for day in days)
    dropped()
    assert _rows_read(gpu1, since=MARCH_FIRST, until=april) == JOBS_OF_MARCH
    assert _rows_read(gpu1, since=begin, until=end) == {"70_0", "70_1", "70_2"}
    assert _rows_read(gpu1, since=TEN, until=TEN + 60) == {"w"}  # it waited, and ran two hours later
    assert _rows_read(gpu2, since=MARCH_FIRST, until=april) == set()


def _rows_read(cluster: Cluster, *, since: int, until: int) -> set[str]:
    """The jobs whose records have come from files; what was rated has come of them alone."""
    files = all_tenants_rows.cluster_usage([cluster.pk], since=since, until=until)
    with transaction.atomic(), files, connection.cursor() as cursor:
        cursor.execute("SELECT job_id FROM filed_record")
        jobs = {job for (job,) in cursor.fetchall()}
        cursor.execute(
            "SELECT count(*) FROM filed_rated WHERE record_id NOT IN (SELECT id FROM filed_record)"
        )
        assert cursor.fetchone() == (0,)
        cursor.execute("SELECT EXISTS (SELECT FROM filed_rated)")
        assert cursor.fetchone() == (bool(jobs),)
    return jobs


def test_more_records_of_a_cluster_than_a_worker_reads_are_a_sentence_and_not_tried_for_ever(
    op: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(efficiency_snapshots, "LARGE", 0)
    monkeypatch.setattr(cluster_efficiency, "MOST_RECORDS", 3)
    few_records = partial(reporting.of_cluster, most_in_files=3)
    monkeypatch.setattr("portal.ops.management.commands.report_cost.of_cluster", few_records)
    dropped()
    assert b"every 2s" in content_of(op, paths()[0])  # how many they are, a worker finds out
    outbox.drain()
    assert SENTENCE in refusal(op, paths()[0])
    assert not OutboxMessage.objects.undone().filter(task__contains="efficiency").exists()
    with pytest.raises(RefusedError, match="2026-03"):
        reported()
    few = f"{REPORTS}?from=2026-03-06&through=2026-03-06&by=pod"
    content_of(op, few)
    outbox.drain()
    assert b"70_2" in content_of(op, few)  # three records, of the same month
    drop.load_back(month=MARCH)
    content_of(op, paths()[0])
    outbox.drain()
    assert b"As of" in content_of(op, paths()[0])


def test_rows_of_all_are_for_operators_alone_and_go_with_the_block(op: User) -> None:
    dropped()
    vision, gpu1 = Tenant.objects.get(slug="vision-lab"), Cluster.objects.get().pk
    for scope in (tenant_scope(vision), acting_scope(vision)):
        with transaction.atomic(), scope, pytest.raises(RowsInFilesError) as refused:  # noqa: SIM117
            with all_tenants_rows.cluster_usage([gpu1], since=MARCH_FIRST, until=TEN):
                pytest.fail("a tenant is in scope")
        assert isinstance(refused.value.__cause__, NotShownError)
    with transaction.atomic(), connection.cursor() as cursor:
        with all_tenants_rows.cluster_usage([gpu1], since=MARCH_FIRST, until=TEN):
            cursor.execute("SELECT count(*) FROM clusters_run WHERE job_id = '1'")
            assert cursor.fetchone() == (1,)
        cursor.execute("SELECT count(*) FROM clusters_run WHERE job_id = '1'")
        assert cursor.fetchone() == (0,)
    assert not RatedJob.objects.filter(job_id="1").exists()
    ann = a_person("new@vision.example", vision)
    assert signed_in(ann).get(paths()[0]).status_code == 404
