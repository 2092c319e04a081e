"""A clock that ran ahead: Op's clusters are not read blindly, no month is closed over it, and Op takes it back."""

from __future__ import annotations

import io
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.core.management import call_command
from django.test import Client

from billing.invoicing.month_close import Outcome
from billing.rating import pulls
from billing.rating.pulls import PullOutcome
from clusters import capacity, connection_test, watermark
from clusters.connectors.base import NodeSeen, NodeState
from clusters.connectors.findings import Level
from clusters.models import CapacityInterval, Cluster, Connection, Pull, Telemetry, UsageRecord
from clusters.watermark import WatermarkError
from portal.core.audit import acting_as
from portal.core.audit.models import AuditEntry
from portal.ops.cli import BadInputError, RefusedError
from tests.builders import a_cluster, a_job, a_plan, a_tenant, an_operator, at, ingest
from tests.schedulers import Scheduler, a_connection
from tests.stories import closed, hours, seconds
from tests.web.house import signed_in
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db

DAY = 86_400


@pytest.fixture(autouse=True)
def _clock_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a pull takes on a busy machine."""
    monkeypatch.setattr(pulls._Clock, "__call__", lambda clock: int(clock.moment.timestamp()))


def read_through(cluster: Cluster) -> str:
    mark = Cluster.objects.get(pk=cluster.pk).complete_through
    return f"{mark:%Y-%m-%d %H:%M}" if mark else "never"


def typed(*words: str) -> str:
    out = io.StringIO()
    call_command(*words, stdout=out)
    return out.getvalue()


@pytest.fixture
def ran_ahead() -> Cluster:
    """Read rightly through 1 March 12:00; then a pass ran when both clocks were 40 days ahead."""
    cluster = a_connection().cluster
    slurm = Scheduler(nodes=[NodeSeen(name="n1", gpu_model="a100", gpus=8, state=NodeState.UP)])
    slurm.pulled(cluster, "2026-03-01 12:00")
    slurm.nodes = []  # by then n1 was gone, the nodes said
    slurm.pulled(cluster, "2026-04-10 12:00")
    return cluster


@pytest.mark.parametrize("ahead", [-40 * DAY, -61, 61])
def test_a_source_whose_clock_says_another_time_is_refused_with_both(ahead: int) -> None:
    cluster = a_connection().cluster
    slurm = Scheduler([a_job(started="2026-03-01 10:00", ended="2026-03-01 11:00")], ahead=ahead)
    pulled = slurm.pulled(cluster, "2026-03-01 12:00")
    assert pulled.outcome is PullOutcome.FAILED
    theirs = at("2026-03-01 12:00") + timedelta(seconds=ahead)
    side = "behind" if ahead < 0 else "ahead of"
    assert pulled.error.startswith(
        f"The clock of http://127.0.0.1:6820 says {theirs:%Y-%m-%d %H:%M:%S} UTC and ours says "
        f"2026-03-01 12:00:00 UTC: it is {abs(ahead):,} s {side} ours. Nothing was read"
    )
    assert not UsageRecord.objects.exists()
    assert read_through(cluster) == "never"
    slurm.ahead = 60
    assert slurm.pulled(cluster, "2026-03-01 12:05").stored.new == 1


def test_the_watermark_never_passes_the_time_of_the_source() -> None:
    cluster = a_connection().cluster
    slurm = Scheduler(ahead=-40)
    slurm.pulled(cluster, "2026-03-01 12:00")
    assert Cluster.objects.get().complete_through == at("2026-03-01 11:59:20")


def test_a_source_that_does_not_tell_its_time_is_read_and_proves_nothing() -> None:
    cluster = a_connection().cluster
    slurm = Scheduler([a_job(started="2026-03-01 10:00", ended="2026-03-01 11:00")], ahead=None)
    pulled = slurm.pulled(cluster, "2026-03-01 12:00")
    assert (pulled.stored.new, read_through(cluster)) == (1, "never")
    assert pulled.notes[0].startswith("The source does not tell its time, so the watermark stays")


def test_a_watermark_in_the_future_fails_the_pull_the_test_and_the_close(ran_ahead: Cluster) -> None:
    assert read_through(ran_ahead) == "2026-04-10 12:00"
    vision = a_tenant(plan=a_plan(), accounts=[(ran_ahead, "vision")])
    slurm = Scheduler([a_job(started="2026-03-01 13:00", ended="2026-03-01 14:00")])

    pulled = slurm.pulled(ran_ahead, "2026-03-01 15:00")
    fact = (
        "The watermark of gpu1 is 2026-04-10 12:00 UTC, which lies in the future (it is 2026-03-01 15:00 UTC)"
    )
    assert pulled.outcome is PullOutcome.FAILED
    assert pulled.error.startswith(fact)
    assert "reset_watermark gpu1" in pulled.error
    assert Connection.objects.get().last_error == pulled.error

    ran_ahead.refresh_from_db()
    now = int(at("2026-03-01 15:00").timestamp())
    findings = connection_test.examine(cluster=ran_ahead, clock=lambda: now)
    finding = next(finding for finding in findings if finding.subject == "Watermark")
    assert (finding.level, finding.sentence) == (Level.FAIL, pulled.error)

    outcome = closed("2026-03", vision, now="2026-04-03")
    assert outcome.outcome is Outcome.BLOCKED
    assert "which lies in the future (it is 2026-04-03 00:00 UTC)" in outcome.reason
    assert "reset_watermark gpu1" in outcome.reason


def test_what_a_clock_ahead_hid_is_read_after_a_reset(ran_ahead: Cluster) -> None:
    vision = a_tenant(plan=a_plan(), accounts=[(ran_ahead, "vision")])
    slurm = Scheduler(
        [a_job(started="2026-03-01 13:00", ended="2026-03-01 14:00")],
        nodes=[NodeSeen(name="n1", gpu_model="a100", gpus=8, state=NodeState.UP)],
    )
    moment = at("2026-03-05 15:00")
    proposed = watermark.proposed(ran_ahead, moment=moment)
    assert proposed == Pull.objects.earliest("pk").as_of  # of the one pass that ran with a right clock
    with acting_as("op@cluster.example", why="The clock of the portal ran ahead."):
        done = watermark.reset(cluster=ran_ahead, to=proposed, moment=moment)
    assert (f"{done.was:%Y-%m-%d %H:%M}", done.to) == ("2026-04-10 12:00", proposed)
    assert slurm.pulled(ran_ahead, "2026-03-05 15:00").stored.new == 1
    assert seconds(vision) == hours(1)
    assert read_through(ran_ahead).startswith("2026-03-05 15:0")
    assert [model.up for model in capacity.now(ran_ahead)] == [8]
    assert CapacityInterval.objects.get().until is None
    assert not Pull.objects.filter(as_of__gt=moment).exists()

    entry = AuditEntry.objects.of(ran_ahead).last()
    assert entry is not None
    assert (entry.who, entry.why) == ("op@cluster.example", "The clock of the portal ran ahead.")
    assert set(entry.after or {}) == {"watermark_reset_from", "watermark_reset_to"}


def test_a_reset_only_goes_back_and_never_into_the_future(ran_ahead: Cluster) -> None:
    moment = at("2026-03-05 15:00")
    with pytest.raises(WatermarkError, match="lies in the future"):
        watermark.reset(cluster=ran_ahead, to=at("2026-03-06"), moment=moment)
    watermark.reset(cluster=ran_ahead, to=at("2026-03-01 10:00"), moment=moment)
    with pytest.raises(WatermarkError, match="only takes it back"):
        watermark.reset(cluster=ran_ahead, to=at("2026-03-01 10:00"), moment=moment)
    watermark.reset(cluster=ran_ahead, to=None, moment=moment)
    with pytest.raises(WatermarkError, match="has no watermark yet"):
        watermark.reset(cluster=ran_ahead, to=None, moment=moment)


def test_telemetry_that_was_read_with_such_a_clock_goes_back_too(ran_ahead: Cluster) -> None:
    Telemetry.objects.create(
        cluster=ran_ahead, base_url="http://127.0.0.1:1", complete_through=at("2026-04-10 11:00")
    )
    watermark.reset(cluster=ran_ahead, to=at("2026-03-01 12:00"), moment=at("2026-03-05 15:00"))
    assert Telemetry.objects.get().complete_through == at("2026-03-01 12:00")


def test_op_resets_it_at_the_shell() -> None:
    cluster = a_cluster("lab", complete_through="2031-01-01")
    with pytest.raises(RefusedError, match="lies in the future"):
        typed("reset_watermark", "lab", "--to", "2030-06-01", "--yes")
    output = typed("reset_watermark", "lab", "--to", "2026-03-01", "--why", "A clock ran ahead.", "--yes")
    assert output.startswith(
        "The watermark of lab goes back from 2031-01-01 00:00 UTC to 2026-03-01 00:00 UTC:"
    )
    assert read_through(cluster) == "2026-03-01 00:00"
    entry = AuditEntry.objects.of(cluster).last()
    assert entry is not None
    assert (entry.through, entry.why) == ("command reset_watermark", "A clock ran ahead.")


def test_op_resets_it_on_the_page() -> None:
    cluster = a_cluster("lab", complete_through="2031-01-01")
    op: Client = signed_in(an_operator())
    shown = op.get("/operator/clusters/lab/").content.decode()
    assert "lab Watermark in the future" in words(shown)
    assert 'href="/operator/clusters/lab/watermark/"' in shown
    assert "in the future" in words(op.get("/operator/clusters/").content.decode())

    path = "/operator/clusters/lab/watermark/"
    assert "which lies in the future" in words(op.get(path).content.decode())
    form = {"to": "2026-03-01T12:00", "why": "The clock ran ahead."}
    assert "This field is required." in words(
        op.post(path, {"to": form["to"], "act": "preview"}).content.decode()
    )
    preview = words(op.post(path, {**form, "act": "preview"}).content.decode())
    assert "The watermark of lab goes back from 2031-01-01 00:00 UTC to 2026-03-01 12:00 UTC" in preview
    assert read_through(cluster) == "2031-01-01 00:00"
    later = op.post(path, {**form, "to": "2030-01-01T00:00", "act": "reset"})
    assert "lies in the future: reset the watermark to a moment that has passed" in words(
        later.content.decode()
    )
    assert op.post(path, {**form, "act": "reset"}).headers["Location"] == "/operator/clusters/lab/"
    assert read_through(cluster) == "2026-03-01 12:00"
    entry = AuditEntry.objects.of(cluster).last()
    assert entry is not None
    assert (entry.who, entry.why) == ("op@cluster.example", "The clock ran ahead.")


def test_a_file_moves_the_watermark_no_further_than_the_moment_of_its_import() -> None:
    cluster = a_cluster()
    ahead = datetime(2030, 1, 1, 0, 3, tzinfo=UTC)  # a node's clock; tests import at the beginning of 2030
    job = a_job(started="2029-12-31 23:00", ended=f"{ahead:%Y-%m-%d %H:%M}")
    assert ingest(cluster, job).as_of == at("2030-01-01")


def test_a_file_proves_nothing_of_what_came_after_it_was_written(tmp_path: Path) -> None:
    a_cluster("lab")
    file = tmp_path / "march.sacct"
    file.write_text("JobID|JobIDRaw|Submit|Start|End|ElapsedRaw|State|Account|User|AllocTRES\n")
    written = int(at("2026-03-01 10:00").timestamp())
    os.utime(file, (written, written))
    with pytest.raises(
        BadInputError, match="was written at 2026-03-01T10:00:00Z, so it cannot prove usage through"
    ):
        typed("import_usage", "lab", str(file), "--as-of", "2026-03-01T10:02:00Z")
    assert "It proves usage through 2026-03-01T10:00:00Z." in typed(
        "import_usage", "lab", str(file), "--as-of", "2026-03-01T10:00:00Z"
    )
