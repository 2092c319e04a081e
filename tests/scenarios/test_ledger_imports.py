"""Op imports the same accounts again and again; each second that Ben used stands there once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection

from billing.models import RatedJob, RatedUsage
from billing.rating import ingest as usage_ingest
from clusters.connectors.base import ConnectorError, Reading, Row
from clusters.models import Cluster, Pull, UsageRecord, UsageRevision
from tests import builders
from tests.builders import a_cluster, a_job, a_plan, a_tenant, at, ingest
from tests.stories import hours, prove, seconds

pytestmark = pytest.mark.django_db


def counts(stored: object) -> tuple[int, int, int, int]:
    return stored.new, stored.unchanged, stored.revised, stored.quarantined  # type: ignore[attr-defined]


def stored_jobs() -> list[tuple[str, int, str]]:
    """All that the ledger holds: (key, revision, state), the superseded ones first."""
    old = list(
        UsageRevision.objects.order_by("source_key", "revision").values_list(
            "source_key", "revision", "state"
        )
    )
    return old + list(
        UsageRecord.objects.order_by("source_key").values_list("source_key", "revision", "state")
    )


def test_case_014_the_same_record_is_billed_once_however_often_and_late_it_comes() -> None:
    cluster = a_cluster()
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    job = a_job(job_id="7", ended="2026-03-02 12:00")

    assert counts(ingest(cluster, job).stored) == (1, 0, 0, 0)
    assert counts(ingest(cluster, job).stored) == (0, 1, 0, 0)
    assert counts(ingest(cluster, *[job] * 1000, as_of="2026-06-01").stored) == (
        0,
        1000,
        0,
        0,
    )  # 90 days later

    assert UsageRecord.objects.count() == 1
    assert RatedUsage.objects.count() == 1
    assert seconds(vision) == hours(2)


def test_case_014_a_thousand_times_in_its_first_file_is_once() -> None:
    cluster = a_cluster()

    assert counts(ingest(cluster, *[a_job(job_id="7")] * 1000).stored) == (1, 999, 0, 0)
    assert UsageRevision.objects.count() == 0


def test_a_file_imported_again_changes_nothing_and_says_so() -> None:
    cluster = a_cluster()
    a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    file = [
        a_job(),
        a_job(gpus=4),
        a_job(ended=None, seen_until="2026-03-02 18:00", state="RUNNING"),
        a_job(started=None, ended=None, submitted="2026-03-02 10:00", state="PENDING"),
    ]
    ingest(cluster, *file)
    rated = list(RatedUsage.objects.order_by("id").values())

    assert counts(ingest(cluster, *file).stored) == (0, 4, 0, 0)
    assert list(RatedUsage.objects.order_by("id").values()) == rated
    assert UsageRevision.objects.count() == 0


def test_case_015_a_changed_row_is_a_new_revision_and_the_old_one_is_kept() -> None:
    cluster = a_cluster()
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job(job_id="7", submitted="2026-03-02 09:00", ended="2026-03-02 12:00"))
    corrected = a_job(job_id="7", submitted="2026-03-02 09:00", ended="2026-03-02 11:00", state="TIMEOUT")

    assert counts(ingest(cluster, corrected).stored) == (0, 0, 1, 0)
    key = corrected.source_key
    assert stored_jobs() == [(key, 1, "COMPLETED"), (key, 2, "TIMEOUT")]
    old = UsageRevision.objects.get()
    assert (old.ended, old.superseded_at) == (int(at("2026-03-02 12:00").timestamp()), builders.LATER)
    assert seconds(vision) == hours(1)
    prove()


@pytest.mark.parametrize(
    "change",
    [
        {"account": "audio"}, {"user": "eve"}, {"queue": "big"}, {"qos": "high"}, {"gpus": 2}, {"gpu_model": "h100"},
        {"started": "2026-03-02 10:30"}, {"ended": "2026-03-02 10:30"}, {"state": "FAILED"}, {"suspended": 60},
        {"cpu_milli": 500}, {"memory_mib": 1024}, {"mig_profile": "1g.5gb", "gpu_share": (1, 7)},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_whatever_the_money_hangs_on_makes_a_revision(change: dict[str, object]) -> None:
    cluster = a_cluster()
    a_tenant(plan=a_plan(charges=("gpu",)), accounts=[(cluster, "vision"), (cluster, "audio")])
    fields = {"job_id": "7", "source_key": "7@1"}
    ingest(cluster, a_job(**fields))

    assert counts(ingest(cluster, a_job(**(fields | change))).stored) == (0, 0, 1, 0)
    assert counts(ingest(cluster, a_job(**(fields | change))).stored) == (0, 1, 0, 0)
    assert prove()["unassigned"] == 0


def test_a_description_is_written_in_place() -> None:
    cluster = a_cluster()
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    fields = {"job_id": "7", "source_key": "7@1"}
    ingest(cluster, a_job(**fields, name="trian"))

    assert counts(ingest(cluster, a_job(**fields, name="train", exit_code="0:0")).stored) == (0, 1, 0, 0)
    assert stored_jobs() == [("7@1", 1, "COMPLETED")]
    assert UsageRecord.objects.get().name == "train"
    assert RatedJob.objects.get(tenant=vision).name == "train"
    assert RatedUsage.objects.count() == 1


def test_a_running_job_grows_with_each_snapshot_and_is_then_completed() -> None:
    cluster = a_cluster()
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    fields = {"job_id": "7", "source_key": "7@1", "started": "2026-03-02 10:00"}
    noon = a_job(**fields, ended=None, seen_until="2026-03-02 12:00", state="RUNNING")
    evening = a_job(**fields, ended=None, seen_until="2026-03-02 18:00", state="RUNNING")

    ingest(cluster, noon)
    assert seconds(vision) == hours(2)
    assert counts(ingest(cluster, evening).stored) == (0, 1, 0, 0)
    assert seconds(vision) == hours(8)
    assert counts(ingest(cluster, a_job(**fields, ended="2026-03-02 19:00")).stored) == (0, 0, 1, 0)
    assert seconds(vision) == hours(9)
    assert [revision for _, revision, _ in stored_jobs()] == [1, 2]  # polling wrote no history
    prove()


def test_an_older_snapshot_after_a_newer_one_changes_nothing() -> None:
    cluster = a_cluster()
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    fields = {"job_id": "7", "source_key": "7@1", "submitted": "2026-03-02 09:00"}
    waiting = a_job(**fields, started=None, ended=None, state="PENDING")
    noon = a_job(**fields, ended=None, seen_until="2026-03-02 12:00", state="RUNNING")
    evening = a_job(**fields, ended=None, seen_until="2026-03-02 18:00", state="RUNNING")
    done = a_job(**fields, ended="2026-03-02 19:00")

    ingest(cluster, evening)
    assert counts(ingest(cluster, noon, waiting).stored) == (0, 2, 0, 0)
    assert seconds(vision) == hours(8)

    ingest(cluster, done)
    assert counts(ingest(cluster, evening, noon, waiting).stored) == (0, 3, 0, 0)
    assert seconds(vision) == hours(9)


def test_rows_of_one_key_in_one_file_become_revisions_in_its_order() -> None:
    cluster = a_cluster()
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    fields = {"job_id": "7", "source_key": "7@1"}
    file = [
        a_job(**fields, ended=None, seen_until="2026-03-02 10:30", state="RUNNING"),
        a_job(**fields, ended="2026-03-02 11:00", state="NODE_FAIL"),
        a_job(),
        a_job(**fields, ended="2026-03-02 12:00", state="COMPLETED"),
    ]

    assert counts(ingest(cluster, *file).stored) == (2, 0, 2, 0)
    assert stored_jobs()[:2] == [("7@1", 1, "RUNNING"), ("7@1", 2, "NODE_FAIL")]
    assert seconds(vision) == hours(3)

    assert counts(ingest(cluster, *file).stored) == (0, 4, 0, 0)
    assert len(stored_jobs()) == 4
    prove()


def test_case_016_a_requeued_job_is_a_second_run_of_its_own() -> None:
    cluster = a_cluster()
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(
        cluster,
        a_job(job_id="7", started="2026-03-02 10:00", ended="2026-03-02 10:20", state="NODE_FAIL"),
        a_job(job_id="7", started="2026-03-02 11:00", ended="2026-03-02 12:00"),
    )

    assert UsageRecord.objects.filter(job_id="7").count() == 2
    assert seconds(vision) == 20 * 60 + 3600


def test_case_017_each_element_of_an_array_and_a_het_job_counts_once() -> None:
    cluster = a_cluster()
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    fields = {"submitted": "2026-03-02 09:00"}
    array = [a_job(job_id=f"80_{n}", source_key=f"{80 + n}@1", **fields) for n in range(3)]
    het = [a_job(job_id=f"90+{n}", source_key=f"{90 + n}@1", gpus=n, **fields) for n in range(3)]

    ingest(cluster, *array, *het)
    ingest(cluster, *reversed(array), *het)

    assert seconds(vision) == hours(3 + 0 + 1 + 2)


def test_case_022_a_source_that_forgets_jobs_deletes_nothing() -> None:
    cluster = a_cluster()
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    old, young = a_job(), a_job(started="2026-03-05 10:00", ended="2026-03-05 11:00")
    ingest(cluster, old, young)

    ingest(cluster, young)

    assert UsageRecord.objects.count() == 2
    assert seconds(vision) == hours(2)


def test_case_023_rows_in_any_order_end_in_the_same_ledger() -> None:
    fields = {"job_id": "7", "source_key": "7@1", "submitted": "2026-03-02 09:00"}
    sights = [
        a_job(**fields, started=None, ended=None, state="PENDING"),
        a_job(**fields, ended=None, seen_until="2026-03-02 12:00", state="RUNNING"),
        a_job(**fields, ended=None, seen_until="2026-03-02 14:00", state="RUNNING"),
        a_job(**fields, ended="2026-03-02 15:00"),
    ]
    plan = a_plan()
    for name, order in {"a": (0, 1, 2, 3), "b": (3, 2, 1, 0), "c": (2, 0, 3, 1), "d": (1, 3, 0, 2)}.items():
        cluster = a_cluster(name)
        tenant = a_tenant(name, plan=plan, accounts=[(cluster, "vision")])
        for sight in order:
            ingest(cluster, sights[sight])
        assert seconds(tenant) == hours(5), order
        assert UsageRecord.objects.get(cluster=cluster).state == "COMPLETED"
    prove()


def test_the_watermark_moves_forward_only_and_to_what_the_rows_prove() -> None:
    cluster = a_cluster()

    def through() -> str:
        return f"{Cluster.objects.get(pk=cluster.pk).complete_through:%Y-%m-%d %H:%M}"

    ingest(cluster, a_job(ended="2026-03-02 11:00"), a_job(ended=None, seen_until="2026-03-02 15:00"))
    assert through() == "2026-03-02 15:00"
    ingest(cluster, a_job(ended="2026-03-02 12:00"))
    assert through() == "2026-03-02 15:00"
    ingest(cluster, as_of="2026-04-01")
    assert through() == "2026-04-01 00:00"
    ingest(cluster)
    assert through() == "2026-04-01 00:00"
    assert Pull.objects.filter(outcome=Pull.Outcome.DONE).count() == 4


def test_case_021_a_read_that_breaks_off_keeps_the_watermark_and_says_why() -> None:
    cluster = a_cluster(complete_through="2026-03-01")
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    jobs = [a_job() for _ in range(usage_ingest.BATCH + 10)]

    def breaks_off() -> Iterator[Row]:
        yield from jobs
        raise ConnectorError("march.sacct changed while it was read: import it again.", retry=True)

    with pytest.raises(ConnectorError, match="changed while it was read"):
        usage_ingest.ingest(
            cluster=cluster, rows=breaks_off(), reading=Reading(), source="march.sacct", moment=builders.LATER
        )

    cluster.refresh_from_db()
    assert cluster.complete_through == at("2026-03-01")
    pull = Pull.objects.get()
    assert (pull.outcome, pull.error) == ("failed", "march.sacct changed while it was read: import it again.")
    assert (pull.new, pull.as_of, pull.ended_at) == (usage_ingest.BATCH, None, builders.LATER)

    again = ingest(cluster, *jobs)
    assert counts(again.stored) == (10, usage_ingest.BATCH, 0, 0)
    cluster.refresh_from_db()
    assert cluster.complete_through == at("2026-03-02 11:00")
    assert seconds(vision) == hours(usage_ingest.BATCH + 10)


def test_an_import_that_the_database_refuses_says_so_too(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = a_cluster()

    def refused() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 / 0")

    monkeypatch.setattr("billing.rating.engine.rate_touched", refused)
    with pytest.raises(Exception, match="division by zero"):
        ingest(cluster, a_job())

    assert UsageRecord.objects.count() == 0
    assert (Pull.objects.get().outcome, Pull.objects.get().error) == ("failed", "division by zero")
