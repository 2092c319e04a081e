"""Op connects a GPUStack by a file; what it metered is pulled once, revised, charged and proved."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from billing.rating import pulls
from clusters import connection_test
from clusters.connection_form import ConnectionForm, GpuStackForm
from clusters.connectors.findings import Level
from clusters.models import Cluster, Connection, Quarantined, UsageRecord
from tests import builders
from tests.builders import LATER, LONG_AGO
from tests.fakes.gpustack import KEY, GpuStack
from tests.hostile.shell import refusal
from tests.scenarios.real import run
from tests.sums import sums_of

pytestmark = pytest.mark.django_db

TEN = datetime(2026, 3, 2, 10, tzinfo=UTC)
NOW = datetime(2026, 3, 3, 12, tzinfo=UTC)
FILE = """
[[meter]]
name = "stack-hours"
title = "GPU instances"
unit = "GPU-hour"
decimals = 2
dimensions = ["type"]

[[meter]]
name = "llm-tokens"
title = "LLM tokens"
unit = "million tokens"
counted = "tokens"
per_unit = 1_000_000
dimensions = ["model", "direction"]

[[cluster]]
name = "stack"
kind = "gpustack"

[cluster.connection]
url = "{url}"
token = "env:GPUSTACK_KEY"
first_usage_from = 2026-03-01

[cluster.connection.options]
gpu = "stack-hours"
tokens = "llm-tokens"
"""


@pytest.fixture
def applied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: GpuStack) -> Cluster:
    monkeypatch.setenv("GPUSTACK_KEY", KEY)
    file = tmp_path / "stack.toml"
    file.write_text(FILE.replace("{url}", source.url))
    run("apply", str(file))
    return Cluster.objects.get(name="stack")


@pytest.fixture
def source() -> object:
    with GpuStack(int(NOW.timestamp())) as stack:
        yield stack


def test_usage_is_pulled_once_revised_and_proved(source: GpuStack, applied: Cluster) -> None:
    prices: list[Any] = [("stack-hours", {}, "2.00", LONG_AGO), ("llm-tokens", {}, "1.00", LONG_AGO)]
    plan = builders.a_plan("ai", prices=prices, charges=("stack-hours", "llm-tokens"))
    builders.a_tenant("vision-lab", plan=plan, accounts=[(applied, "vision")])
    row = source.instance(TEN, 3600, "0.5")
    source.tokens(TEN.date(), 1_000, 200, 50)
    first = pulls.pull(applied, moment=NOW)
    assert not first.error
    assert UsageRecord.objects.count() == 4
    applied.refresh_from_db()
    assert applied.complete_through == NOW.replace(hour=0)
    assert sums_of("stack-hours")["allocated"] == "0.5"
    live = ("prove", "--live", "--hours", "48")
    compared = run(*live)["source"]
    assert (compared["facts"], compared["differing"]) == (4, 0)
    row["gpu_hours"] *= 3
    out = io.StringIO()
    with pytest.raises(SystemExit):
        call_command(*live, stdout=out)
    assert ": the source says 150 counted, the ledger 50 counted" in out.getvalue()
    assert not pulls.pull(applied, since=TEN, until=NOW, moment=NOW).error
    assert UsageRecord.objects.count() == 4
    assert sums_of("stack-hours")["allocated"] == "1.5"
    other = source.instance(TEN - timedelta(hours=1), 3600, id=8)
    source.hours.remove(row)
    for _ in range(2):
        assert not pulls.pull(applied, since=TEN - timedelta(hours=2), until=NOW, moment=NOW).error
        assert sums_of("stack-hours")["allocated"] == "1"
    gone = UsageRecord.objects.get(job_id="instance 7")
    assert (gone.quantity, gone.revision, gone.account.name) == (0, 3, "vision")
    source.hours.remove(other)
    emptied = pulls.pull(applied, since=TEN - timedelta(hours=2), until=NOW, moment=NOW)
    assert sums_of("stack-hours")["allocated"] == "1"
    assert "it lists nothing before them" in " ".join(emptied.notes)
    assert not Quarantined.objects.exists()


def test_days_of_a_downtime_are_caught_up_by_one_pull(source: GpuStack, applied: Cluster) -> None:
    for number in range(-30, 25 * 5):
        source.instance(TEN + number * timedelta(hours=1), 3600)
    later = NOW + timedelta(days=5, hours=3)
    source.now = int(later.timestamp())
    for number in range(6):
        source.tokens(TEN.date() + timedelta(days=number), 1, 0, 0)
    pulled = pulls.pull(applied, moment=later)
    assert not pulled.error
    applied.refresh_from_db()
    assert applied.complete_through == later.replace(hour=0)


def test_the_key_rests_encrypted_and_test_connection_counts(source: GpuStack, applied: Cluster) -> None:
    source.instance(TEN + timedelta(hours=24), 3600)
    connection = Connection.objects.get(cluster=applied)
    assert KEY not in str(connection.token)
    findings = connection_test.examine(cluster=applied, clock=lambda: source.now)
    assert {finding.subject: finding.level for finding in findings} == {
        "Key": Level.OK,
        "gpu": Level.OK,
        "tokens": Level.WARN,
        "Watermark": Level.OK,
    }


def test_the_form_takes_meters_and_refuses_what_is_of_other_kinds(applied: Cluster) -> None:
    connection = Connection.objects.get(cluster=applied)
    form = ConnectionForm(instance=connection, moment=LATER)
    assert "options" in form.fields
    assert not {"new_password", "new_jwt_key", "slurm_cluster", "coverage_needed"} & form.fields.keys()
    values = {"base_url": connection.base_url, "every": 300, "look_back": 48}
    wrong = ConnectionForm({**values, "options": '{"preset": "kueue"}'}, instance=connection, moment=LATER)
    assert "There is no option" in str(wrong.errors)
    connection.refresh_from_db()
    meter = connection.options["gpu"]
    page = GpuStackForm({**values, "tokens": ""}, instance=connection, moment=LATER)
    assert "at least one kind of usage needs a meter" in str(page.errors)
    page = GpuStackForm({**values, "gpu": meter}, instance=connection, moment=LATER)
    assert page.is_valid(), page.errors
    assert page.save().options == {"gpu": meter}


@pytest.mark.parametrize(
    ("kind", "options", "sentence"),
    [
        ("gpustack", 'gpus = "x"', "There is no option"),
        ("gpustack", 'preset = "kueue"', "There is no option"),
        ("prometheus", 'gpu = "stack-hours"', "There is no option"),
    ],
)
def test_options_of_another_kind_are_refused_by_the_file(
    tmp_path: Path, kind: str, options: str, sentence: str
) -> None:
    file = tmp_path / "other.toml"
    text = f'[[cluster]]\nname = "other"\nkind = "{kind}"\n[cluster.connection]\nurl = "http://stack:80"\n'
    file.write_text(f"{text}[cluster.connection.options]\n{options}\n")
    assert sentence in refusal("apply", str(file))
    assert not Cluster.objects.filter(name="other").exists()
