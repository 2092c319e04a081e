"""Op watches what is spent and what stands still: the figures of /metrics, to the cent and to the second."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from django.db import connection
from kombu import Connection
from prometheus_client.parser import text_string_to_metric_families
from pytest_django.fixtures import Settings

from billing.queries import overview, spending
from clusters.models import Cluster, ClusterKind
from clusters.models import Connection as ClusterConnection
from portal.celery import app
from portal.core.outbox import outbox
from portal.core.outbox.models import OutboxMessage
from portal.dev.embedded.redis import Redis
from portal.env import broker
from portal.ops.metrics import broker as depths
from portal.ops.metrics.collector import exposed
from portal.queues import KINDS
from tests import builders
from tests.builders import a_job, a_plan, a_tenant, at, ingest

pytestmark = pytest.mark.django_db

Series = dict[tuple[str, ...], float]


def read(moment: str) -> dict[str, Series]:
    """Per metric its values by their label values, in the order of the labels' names."""
    body, _ = exposed(accept="", moment=at(moment))
    metrics: dict[str, Series] = {}
    for family in text_string_to_metric_families(body.decode()):
        series = metrics.setdefault(family.name, {})
        for sample in family.samples:
            labels = tuple(value for _, value in sorted(sample.labels.items()))
            assert labels not in series, "one series is told twice"
            series[labels] = sample.value
    return metrics


def job(gpu_type: str, name: str, namespace: str, team: str) -> tuple[str, ...]:
    return gpu_type, name, namespace, team


def two_labs(cluster: Cluster) -> None:
    """The vision lab pays 2.00 dollars, the speech lab 1.50 euros for a GPU-hour."""
    a_tenant("vision-lab", plan=a_plan(), accounts=[(cluster, "vision")])
    euros = a_plan("euros", "EUR", prices=[("gpu-hour", {}, "1.50", builders.LONG_AGO)])
    a_tenant("speech-lab", plan=euros, accounts=[(cluster, "speech")])


def test_each_job_has_its_cost_by_name_team_model_and_namespace() -> None:
    cluster = builders.a_cluster()
    two_labs(cluster)
    ingest(
        cluster,
        a_job(
            name="pretrain", gpus=64, started="2026-03-02 10:00", ended=None, seen_until="2026-03-02 12:00"
        ),
        a_job(name="sweep", started="2026-03-02 10:00", ended="2026-03-02 11:00"),
        a_job(name="sweep", started="2026-03-02 11:00", ended="2026-03-02 11:00:01", gpu_share=(1, 7)),
        a_job(name="sweep", gpu_model="", started="2026-03-02 11:00", ended="2026-03-02 12:00"),
        a_job(account="speech", name="asr", gpus=2, started="2026-03-02 10:00", ended="2026-03-02 11:00"),
        a_job(name="last week", started="2026-02-23 10:00", ended="2026-02-23 11:00"),
        a_job(name="nobody's", account="nobody"),
        as_of="2026-03-02 12:00",
    )
    metrics = read("2026-03-02 12:10")
    assert metrics["training_job_cost_usd"] == {
        job("a100", "pretrain", "vision", "vision-lab"): 256.0,
        job("a100", "sweep", "vision", "vision-lab"): 2 + 2 / 7 / 3600,
        job("unknown", "sweep", "vision", "vision-lab"): 2.0,
    }
    assert metrics["clustertab_job_cost"] == {("EUR", *job("a100", "asr", "speech", "speech-lab")): 3.0}


def test_a_job_is_told_until_a_day_after_its_end_with_all_that_it_cost() -> None:
    cluster = builders.a_cluster()
    two_labs(cluster)
    month = a_job(name="pretrain", started="2026-02-27 00:00", ended="2026-03-02 00:00")
    ingest(cluster, month, as_of="2026-03-02 12:00")
    whole = {job("a100", "pretrain", "vision", "vision-lab"): 144.0}
    assert read("2026-03-02 23:59")["training_job_cost_usd"] == whole
    assert read("2026-03-03 00:01")["training_job_cost_usd"] == {}


def test_a_run_that_no_pass_has_seen_for_a_day_is_told_no_more() -> None:
    cluster = builders.a_cluster()
    two_labs(cluster)
    ingest(cluster, a_job(ended=None, seen_until="2026-03-02 11:00"), as_of="2026-03-02 11:00")
    assert len(read("2026-03-03 10:59")["training_job_cost_usd"]) == 1
    assert read("2026-03-03 11:01")["training_job_cost_usd"] == {}


def test_what_is_beyond_the_limit_is_summed_up_so_that_the_total_stays_true(settings: Settings) -> None:
    settings.CLUSTERTAB_METRICS_SERIES = 2
    cluster = builders.a_cluster()
    two_labs(cluster)
    ingest(
        cluster,
        *(a_job(name=f"run-{n}", gpus=n, gpu_share=(1, 3)) for n in range(1, 7)),
        *(a_job(account="speech", name=f"asr-{n}", gpus=n) for n in range(1, 4)),
        as_of="2026-03-02 12:00",
    )
    metrics = read("2026-03-02 12:10")
    assert metrics["training_job_cost_usd"] == {
        job("a100", "run-6", "vision", "vision-lab"): 4.0,
        job("a100", "run-5", "vision", "vision-lab"): 10 / 3,
        job("other", "other", "other", "other"): 20 / 3,
    }
    assert sum(metrics["training_job_cost_usd"].values()) == 14.0
    assert metrics["clustertab_job_cost"] == {
        ("EUR", *job("a100", "asr-3", "speech", "speech-lab")): 4.5,
        ("EUR", *job("a100", "asr-2", "speech", "speech-lab")): 3.0,
        ("EUR", *job("other", "other", "other", "other")): 1.5,
    }


def test_tenants_beyond_the_limit_are_summed_up_per_currency(settings: Settings) -> None:
    settings.CLUSTERTAB_METRICS_SERIES = 1
    cluster = builders.a_cluster()
    two_labs(cluster)
    more = a_plan("more", prices=[("gpu-hour", {}, "9.99", builders.LONG_AGO)])
    a_tenant("robotics", plan=more, accounts=[(cluster, "robots")])
    ingest(
        cluster,
        a_job(),
        a_job(account="robots"),
        a_job(account="speech", ended="2026-03-02 10:20"),
        as_of="2026-03-02 12:00",
    )
    assert read("2026-03-20")["clustertab_tenant_spend"] == {
        ("USD", "robotics"): 9.99,
        ("USD", "other"): 2.0,
        ("EUR", "speech-lab"): 0.5,
    }
    assert read("2026-04-01")["clustertab_tenant_spend"] == {}, "a new period has begun"


def test_the_spend_is_what_the_tenants_own_overview_shows() -> None:
    cluster = builders.a_cluster()
    plan = a_plan(
        prices=[
            ("gpu-hour", {"gpu_model": ["a100"]}, "0.333333", builders.LONG_AGO),
            ("gpu-hour", {}, "1.17", builders.LONG_AGO),
            ("cpu-core-hour", {}, "0.011", builders.LONG_AGO),
        ],
        charges=["gpu", "cpu"],
    )
    vision = a_tenant("vision-lab", plan=plan, timezone="Asia/Kolkata")
    for account in ("vision", "robots"):
        builders.own(vision, cluster, account, project=account)
    ingest(
        cluster,
        *(a_job(gpus=n, ended=f"2026-03-02 11:0{n}", cpu_milli=1500, gpu_share=(1, 7)) for n in range(1, 7)),
        *(a_job(account="robots", gpu_model="l4", ended=f"2026-03-02 10:1{n}") for n in range(1, 7)),
        a_job(started="2026-02-28 18:00", ended="2026-02-28 19:00"),  # half of it in the lab's own March
        as_of="2026-03-02 12:00",
    )
    periods = overview.around(vision, moment=at("2026-03-20"))
    assert periods is not None
    period = periods.period
    (shown,) = overview.overview(vision, period, None, today=date(2026, 3, 20)).spend
    spend = read("2026-03-20")["clustertab_tenant_spend"]
    assert spend == {("USD", "vision-lab"): float(shown.text)}
    assert shown.text == "2.92"  # 1.24 for the slices, 0.10 for the cores, 1.58 for the L4s


def test_a_name_of_any_length_and_any_letters_is_one_series() -> None:
    cluster = builders.a_cluster()
    two_labs(cluster)
    odd = 'a"b\\c\nд' + "x" * 300
    ingest(cluster, a_job(name=odd), a_job(name=odd + "y"), as_of="2026-03-02 12:00")
    assert read("2026-03-02 12:10")["training_job_cost_usd"] == {
        job("a100", odd[:120], "vision", "vision-lab"): 4.0
    }


def test_usage_that_cannot_be_billed_is_told_in_seconds() -> None:
    cluster = builders.a_cluster()
    priced = a_plan(prices=[("gpu-hour", {"gpu_model": ["a100"]}, "2.00", builders.LONG_AGO)])
    vision = a_tenant("vision-lab", plan=priced)
    builders.own(vision, cluster, "vision", since="2026-03-02 10:30")
    ingest(
        cluster,
        a_job(gpu_model="h100", gpus=4, started="2026-03-02 11:00", ended="2026-03-02 12:00"),
        a_job(),  # half of it was before the lab owned the account
        a_job(account="nobody", gpus=2),
        a_job(account="nobody", started="2026-01-02 10:00", ended="2026-01-02 11:00"),  # long ago
        as_of="2026-03-02 12:00",
    )
    metrics = read("2026-03-02 12:10")
    assert metrics["clustertab_unpriced_gpu_seconds"] == {("vision-lab",): 4 * 3600}
    assert metrics["clustertab_unassigned_gpu_seconds"] == {("gpu1",): 1800 + 2 * 3600}


def test_how_far_each_cluster_is_read_and_whether_its_passes_fail() -> None:
    builders.a_cluster("files", complete_through="2026-03-02 11:00")
    slurm = builders.a_cluster("slurm", kind=ClusterKind.SLURM, complete_through="2026-03-02 12:00")
    new = builders.a_cluster("new", kind=ClusterKind.SLURM)
    ClusterConnection.objects.create(
        cluster=slurm, base_url="http://127.0.0.1:1", last_success_at=at("2026-03-02 12:05"), failures=3
    )
    ClusterConnection.objects.create(cluster=new, base_url="http://127.0.0.1:1")
    off = builders.a_cluster("off", kind=ClusterKind.SLURM, complete_through="2026-03-01 12:10")
    ClusterConnection.objects.create(cluster=off, base_url="http://127.0.0.1:1", enabled=False, failures=9)
    metrics = read("2026-03-02 12:10")
    never = float("inf")
    assert metrics["clustertab_cluster_watermark_lag_seconds"] == {
        ("files",): 4200,
        ("new",): never,
        ("off",): 86400,
        ("slurm",): 600,
    }
    assert metrics["clustertab_cluster_last_success_seconds"] == {("new",): never, ("slurm",): 300}
    assert metrics["clustertab_cluster_failed_passes"] == {("new",): 0, ("slurm",): 3}


def test_rows_in_quarantine_are_counted_by_cluster_and_reason() -> None:
    cluster = builders.a_cluster()
    ingest(
        cluster, *(builders.a_bad_row(raw=str(n)) for n in range(3)), builders.a_bad_row(code="odd", raw="9")
    )
    assert read("2026-03-02")["clustertab_quarantined_rows"] == {("gpu1", "truncated"): 3, ("gpu1", "odd"): 1}


def test_a_part_that_cannot_be_told_leaves_the_others_standing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**_: object) -> None:
        raise ValueError("nobody thought of that")

    monkeypatch.setattr(spending, "spending", broken)
    outbox.add("tests.integration.effects.nothing", number=1)
    metrics = read("2026-03-02")
    assert "clustertab_tenant_spend" not in metrics
    assert metrics["clustertab_outbox_waiting"] == {("tests.integration.effects.nothing",): 1}
    failed = metrics["clustertab_metrics_part_failed"]
    assert [part for part, yes in failed.items() if yes] == [("spend",)]


def test_work_that_is_left_over_is_told_by_task_with_its_age() -> None:
    outbox.add("tests.integration.effects.nothing", number=1)
    outbox.add("tests.integration.effects.nothing", number=2)
    OutboxMessage.objects.update(created_at=at("2026-03-02 12:00"))
    OutboxMessage.objects.filter(kwargs={"number": 2}).update(attempts=1, last_error="no")
    metrics = read("2026-03-02 12:10")
    task = ("tests.integration.effects.nothing",)
    assert metrics["clustertab_outbox_waiting"] == {task: 2}
    assert metrics["clustertab_outbox_failed"] == {task: 1}
    assert metrics["clustertab_outbox_oldest_seconds"] == {task: 600}


def test_messages_that_no_worker_has_taken_are_counted(settings: Settings, tmp_path: Path) -> None:
    with Redis(tmp_path) as redis:
        settings.REDIS_URL = redis.url()
        with Connection(broker(redis.url())) as broker_connection:
            for _ in range(3):
                app.send_task("billing.tasks.pull_due", connection=broker_connection)
        metrics = read("2026-03-02")
    assert metrics["clustertab_broker_up"] == {(): 1}
    assert metrics["clustertab_queue_messages"] == {(name,): 3 if name == "wake" else 0 for name in KINDS}


def test_the_broker_is_not_waited_for_in_a_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    depth = len(connection.savepoint_ids)
    monkeypatch.setattr(depths, "depths", lambda: {"savepoints": len(connection.savepoint_ids) - depth})
    assert read("2026-03-02")["clustertab_queue_messages"] == {("savepoints",): 0}


def test_without_a_broker_it_says_so_and_tells_the_rest(settings: Settings, tmp_path: Path) -> None:
    settings.REDIS_URL = f"unix://{tmp_path}/none.sock?db=0"
    builders.a_cluster(complete_through="2026-03-01")
    metrics = read("2026-03-02")
    assert metrics["clustertab_broker_up"] == {(): 0}
    assert metrics["clustertab_queue_messages"] == {}
    assert metrics["clustertab_cluster_watermark_lag_seconds"] == {("gpu1",): 86400}
