"""A real Prometheus scrapes a served ClusterTab, with the configuration and the alerts that deploy/ has."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen
from uuid import uuid4

import pytest
import yaml
from django.core.management import get_commands
from pytest_django.fixtures import Settings
from pytest_django.live_server_helper import LiveServer

from clusters.models import AccountBlock, Act, ActKind, Cluster, ClusterKind, Connection
from portal.core.outbox import outbox
from portal.env import ROOT
from portal.ops.grafana.dashboards import billing
from tests import builders
from tests.documentation import DOCS, table
from tests.integration import promql
from tests.integration.prom_lab import BINARIES, Lab, bare

pytestmark = pytest.mark.usefixtures("transactional_db")

TOKEN = "the-token-of-the-monitoring"
DEPLOY = ROOT / "deploy" / "prometheus"
CONFIG, RULES = DEPLOY / "clustertab.yml", DEPLOY / "clustertab.rules.yml"
HOUR = 3600

OURS = (
    *(
        "clustertab_tenant_spend",
        "training_job_cost_usd",
        "clustertab_job_cost",
        "clustertab_unpriced_gpu_seconds",
    ),
    *("clustertab_cluster_watermark_lag_seconds", "clustertab_cluster_last_success_seconds"),
    "clustertab_changed_blocks",
    *("clustertab_cluster_failed_passes", "clustertab_quarantined_rows", "clustertab_unassigned_gpu_seconds"),
    *("clustertab_webhooks_waiting", "clustertab_webhooks_lag_seconds"),
    *("clustertab_webhooks_failing", "clustertab_webhooks_given_up"),
    *("clustertab_outbox_waiting", "clustertab_outbox_failed", "clustertab_outbox_oldest_seconds"),
    *("clustertab_metrics_part_failed", "clustertab_broker_up", "clustertab_queue_messages"),
    *("clustertab_requests_total", "clustertab_unclosed_period_seconds", "clustertab_sealed_files_damaged"),
)
"""All metrics that a site without a key of Stripe tells."""
REPLICA = ("clustertab_replica_up", "clustertab_replica_lag_seconds")
"""Those that come with a replica."""
BOOKS = ("clustertab_reconciliation_differences", "clustertab_reconciliation_age_seconds")
"""Those that come with a key."""


@contextmanager
def scraping(lab: Lab, server: LiveServer, *, token: str = TOKEN) -> Iterator[str]:
    """The address of a Prometheus that reads the server as deploy/ tells it to, only more often and without TLS."""
    config = CONFIG.read_text()
    for original, instead in (
        ("scheme: https", "scheme: http"),
        ("billing.example.org", server.url.removeprefix("http://")),
        ("scrape_interval: 60s", "scrape_interval: 1s"),
        ("scrape_timeout: 30s", "scrape_timeout: 1s"),
    ):
        assert config.count(original) == 1, original
        config = config.replace(original, instead)
    files = {"clustertab.token": token, "clustertab.rules.yml": RULES.read_text()}
    with bare(lab, config=config, files=files) as url:
        yield url


def a_site() -> None:
    """Jobs of this hour, in dollars and euros, and one of a March that nobody closed; a broken cluster, unpriced and
    unassigned use, bad rows, work."""
    now = int(time.time())
    cluster = builders.a_cluster()
    dollars = builders.a_plan(prices=[("gpu-hour", {"gpu_model": ["h100"]}, "2.00", builders.LONG_AGO)])
    euros = builders.a_plan("euros", "EUR", prices=[("gpu-hour", {}, "1.50", builders.LONG_AGO)])
    builders.a_tenant("vision-lab", plan=dollars, accounts=[(cluster, "vision")])
    builders.a_tenant("speech-lab", plan=euros, accounts=[(cluster, "speech")])
    ran = {"started": now - 2 * HOUR, "ended": now - HOUR}
    builders.ingest(
        cluster,
        builders.a_job(name="pretrain", gpus=64, gpu_model="h100", **ran),
        builders.a_job(name="slice", gpu_model="h100", gpu_share=(1, 7), **ran),
        builders.a_job(name="asr", account="speech", **ran),
        builders.a_job(name="odd", gpu_model="t4", **ran),
        builders.a_job(account="nobody", **ran),
        builders.a_job(name="old", gpu_model="h100", started="2026-03-02 10:00", ended="2026-03-02 12:00"),
        builders.a_bad_row(),
    )
    slurm = Cluster.objects.create(name="slurm", kind=ClusterKind.SLURM)
    Connection.objects.create(cluster=slurm, base_url="http://127.0.0.1:1", failures=4)
    block = Act.objects.create(
        cluster=slurm,
        kind=ActKind.BLOCK,
        target="account vision",
        account="vision",
        errand=uuid4(),
        who="op",
        intended_at=datetime.now(UTC),
        before={},
        intended={},
    )
    AccountBlock.objects.create(
        cluster=slurm, account="vision", limits={"x": [None, 0]}, changed={"x": 8}, blocked_by=block
    )
    outbox.add("django.core.management.call_command")


@pytest.fixture
def served(live_server: LiveServer, settings: Settings) -> LiveServer:
    from django.db import transaction

    settings.CLUSTERTAB_METRICS_TOKEN = TOKEN
    with transaction.atomic():
        a_site()
    return live_server


def test_prometheus_reads_what_jobs_cost(served: LiveServer, pushed_lab: Lab) -> None:
    with scraping(pushed_lab, served) as url:
        (pretrain,) = promql.eventually(url, 'training_job_cost_usd{job_name="pretrain"}')
        labels = {name: pretrain["metric"][name] for name in ("job_name", "team", "gpu_type", "namespace")}
        assert labels == {
            "job_name": "pretrain",
            "team": "vision-lab",
            "gpu_type": "h100",
            "namespace": "vision",
        }
        assert pretrain["value"][1] == "128"
        (both,) = promql.instant(url, "sum by (team) (training_job_cost_usd)")
        assert float(both["value"][1]) == pytest.approx(128 + 2 / 7, rel=1e-15)
        (euros,) = promql.instant(url, "clustertab_job_cost")
        assert (euros["metric"]["currency"], euros["value"][1]) == ("EUR", "1.5")
        assert promql.values(url, "up", by="job") == {"clustertab": 1}


def test_every_panel_of_the_billing_dashboard_draws(served: LiveServer, pushed_lab: Lab) -> None:
    with scraping(pushed_lab, served) as url:
        promql.eventually(url, "clustertab_broker_up")
        for panel in billing()["panels"]:
            for target in panel["targets"]:
                # The broker is not up in tests, and says nothing of its queues then.
                if "clustertab_queue_messages" not in target["expr"]:
                    assert promql.instant(url, target["expr"]), panel["title"]
        top_jobs = promql.values(url, panel_of("Most expensive jobs"), by="job_name")
        assert top_jobs == {"pretrain": 128, "slice": pytest.approx(2 / 7)}
        hours = promql.values(url, panel_of("GPU-hours that cannot be billed"), by="tenant")
        assert hours == {"vision-lab": 1}


def panel_of(title: str) -> str:
    """The first expression of a panel."""
    (panel,) = [panel for panel in billing()["panels"] if panel["title"] == title]
    return str(panel["targets"][0]["expr"])


def test_a_wrong_token_is_seen_as_a_target_that_is_down(served: LiveServer, pushed_lab: Lab) -> None:
    with scraping(pushed_lab, served, token=TOKEN + "x") as url:
        assert promql.eventually(url, "up")[0]["value"][1] == "0"
        assert promql.instant(url, "training_job_cost_usd") == []


def test_the_alerts_go_off_for_what_is_wrong(served: LiveServer, pushed_lab: Lab) -> None:
    with scraping(pushed_lab, served) as url:
        promql.eventually(url, "clustertab_broker_up")
        rules = alerts()
        wrong = {name for name, rule in rules.items() if promql.instant(url, rule["expr"])}
    assert wrong == {
        "ClusterTabBrokerDown",
        "ClusterTabClusterBehind",
        "ClusterTabPassesFail",
        "ClusterTabBlocksChanged",
        "ClusterTabUnpriced",
        "ClusterTabQuarantineGrows",
        "ClusterTabCloseLate",
    }
    quiet = {"ClusterTabDown", "ClusterTabMetricsIncomplete", "ClusterTabOutboxStuck", "ClusterTabUnassigned"}
    quiet |= {"ClusterTabBooksDiffer", "ClusterTabNotReconciled", "ClusterTabWatermarkInTheFuture"}
    quiet |= {
        "ClusterTabSealedFilesDamaged",
        "ClusterTabWebhooksLate",
        "ClusterTabFreshnessMissed",
        "ClusterTabWebhooksMissed",
        "ClusterTabErrors",
        "ClusterTabReplicaAway",
        "ClusterTabReplicaLate",
    }
    assert set(rules) - wrong == quiet


def test_promtool_finds_no_fault(served: LiveServer, pushed_lab: Lab) -> None:
    promtool = str(pushed_lab.dir / BINARIES / "promtool")
    request = Request(f"{served.url}/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    with urlopen(request, timeout=30) as answer:
        metrics = answer.read()
    for command, stdin in (
        ([promtool, "check", "metrics"], metrics),
        ([promtool, "check", "rules", str(RULES)], b""),
        ([promtool, "check", "config", "--syntax-only", str(CONFIG)], b""),
    ):
        done = subprocess.run(command, input=stdin, capture_output=True)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    assert {line.split()[2] for line in metrics.decode().splitlines() if line.startswith("# TYPE")} == set(
        OURS
    )


def test_every_metric_and_alert_is_documented() -> None:
    assert {row["metric"].strip("`") for row in table("reference/metrics.md", "Metrics")} == {
        *OURS,
        *BOOKS,
        *REPLICA,
    }
    rows = table("reference/metrics.md", "Alerts worth having")
    assert {row["alert"].strip("`") for row in rows} == set(alerts())
    for row in rows:
        command = row["command"].strip("`").split()[0]
        assert command == "docker" or command in get_commands(), row
    objectives = {rule["record"] for rule in rules() if "record" in rule}
    text = (DOCS / "reference" / "metrics.md").read_text()
    assert {name for name in objectives if name.endswith("30d") and f"`{name}`" not in text} == set()


BURN = "failed within the hour: in two days at this rate, all of a month's errors (0.1 %) are used up."
OBJECTIVES = """
rule_files: [{rules}]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      # An hour and a half behind for 500 minutes, then three hours behind for as many: half of the time in order.
      - series: 'clustertab_cluster_watermark_lag_seconds{{cluster="gpu1"}}'
        values: '5400x511 10800x511'
      - series: 'clustertab_webhooks_lag_seconds'
        values: '1x1023'
      # Of 100 requests a minute two fail, of pages; of the API none has ever failed.
      - series: 'clustertab_requests_total{{kind="page",status="2xx"}}'
        values: '0+98x1023'
      - series: 'clustertab_requests_total{{kind="page",status="5xx"}}'
        values: '0+2x1023'
      - series: 'clustertab_requests_total{{kind="api",status="2xx"}}'
        values: '0+100x1023'
    promql_expr_test:
      - expr: round(clustertab:cluster_fresh:ratio30d, 0.001)
        eval_time: 1023m
        exp_samples: [{{labels: '{{cluster="gpu1"}}', value: 0.5}}]
      - expr: clustertab:webhooks_on_time:ratio30d
        eval_time: 1023m
        exp_samples: [{{labels: 'clustertab:webhooks_on_time:ratio30d', value: 1}}]
      - expr: clustertab:request_errors:ratio1h
        eval_time: 1023m
        exp_samples:
          - {{labels: 'clustertab:request_errors:ratio1h{{kind="page"}}', value: 0.02}}
          - {{labels: 'clustertab:request_errors:ratio1h{{kind="api"}}', value: 0}}
    alert_rule_test:
      - eval_time: 1023m
        alertname: ClusterTabErrors
        exp_alerts:
          - exp_labels: {{severity: page, kind: page}}
            exp_annotations:
              summary: "2% of requests (page) {burn}"
      - eval_time: 1023m
        alertname: ClusterTabFreshnessMissed
        exp_alerts:
          - exp_labels: {{severity: ticket, cluster: gpu1}}
            exp_annotations:
              summary: "gpu1 was up to date for 50% of 30 days; promised are 99 %."
"""


def test_objectives_are_what_counters_and_lags_say(pushed_lab: Lab, tmp_path: Path) -> None:
    cases = tmp_path / "objectives.yml"
    cases.write_text(OBJECTIVES.format(rules=RULES, burn=BURN))
    promtool = str(pushed_lab.dir / BINARIES / "promtool")
    done = subprocess.run([promtool, "test", "rules", str(cases)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}
