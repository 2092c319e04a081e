"""Op looks at one cluster: whether it is read, what it has, what it lost; and pulls, tests and connects it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from billing import tasks
from clusters import connection_test
from clusters.connectors.base import ConnectorError, NodeSeen, NodeState
from clusters.connectors.slurm.check import Finding, Level
from clusters.models import Cluster, ClusterKind, Connection, Pull, Telemetry
from portal.core.outbox import outbox
from portal.core.vault import seal
from tests import builders
from tests.builders import a_job, an_operator, at
from tests.schedulers import PASSWORDS, Scheduler, a_connection
from tests.web.house import signed_in
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db

PATH = "/operator/clusters/gpu1/"


@pytest.fixture
def op() -> Client:
    return signed_in(an_operator())


def shown(op: Client, path: str = PATH, **headers: str) -> str:
    response = op.get(path, headers=headers)
    assert response.status_code == 200
    return words(response.content.decode())


def test_a_cluster_that_is_read_says_how_far_and_with_what(op: Client) -> None:
    cluster = a_connection().cluster
    slurm = Scheduler([a_job(started="2026-03-01 10:00", ended="2026-03-01 11:00")])
    slurm.nodes = [
        NodeSeen(name="n1", gpu_model="a100", gpus=8, state=NodeState.UP),
        NodeSeen(name="n2", gpu_model="a100", gpus=8, state=NodeState.DRAINED),
        NodeSeen(name="n3", gpu_model="h100", gpus=4, state=NodeState.DOWN),
    ]
    slurm.pulled(cluster, "2026-03-01 12:00")
    text = shown(op)
    assert "Slurm 24.11.3 over v0.0.42 at http://127.0.0.1:6820" in text
    assert "Data through 1 Mar 2026, 12:00" in text
    assert "GPUs now 20 8 drained, 4 down" in text
    assert "a100 8 8 0 16 h100 0 0 4 4" in text
    assert "1 Mar 2026, 12:00 Done 1 Mar 2026, 00:00 – 1 Mar 2026, 12:00" in text
    assert "Stored secrets headers, token, signing key; entered" in text
    assert not any(secret in op.get(PATH).content.decode() for secret in PASSWORDS)
    assert f'href="{PATH}"' in op.get("/operator/clusters/").content.decode()


def test_a_cluster_that_cannot_be_read_says_why_and_when_it_is_tried_again(op: Client) -> None:
    cluster = a_connection().cluster
    moment = timezone.now() - timedelta(seconds=5)
    slurm = Scheduler(
        fails=ConnectorError("The token has expired: make one with `scontrol token`.", retry=False)
    )
    for _ in range(2):
        slurm.pulled(cluster, f"{moment:%Y-%m-%d %H:%M:%S}")
    text = shown(op)
    assert "gpu1 Not readable" in text
    assert "The token has expired: make one with `scontrol token`. The last 2 syncs failed." in text
    assert "Retrying automatically in 59 min 5" in text
    assert "No data is lost: the next sync continues from the watermark." in text


def test_op_pulls_now_and_watches_it(op: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = a_connection().cluster
    Connection.objects.update(next_pull_at=at("2031-01-01"))
    assert 'hx-trigger="every 15s"' in op.get(PATH).content.decode()
    assert op.post(PATH, {"act": "pull"}).headers["Location"] == PATH
    assert "Sync requested. It starts shortly." in shown(op)
    assert "Next sync due now" in shown(op)
    assert 'hx-trigger="every 2s"' in op.get(PATH).content.decode()

    sent: list[int] = []
    monkeypatch.setattr(
        tasks.pull_usage, "apply_async", lambda *, kwargs, expires: sent.append(kwargs["cluster_id"])
    )
    outbox.drain()
    assert sent == [cluster.pk]

    now = timezone.now()
    Pull.objects.create(
        cluster=cluster, source="x", started_at=now, since=at("2026-03-01"), until=at("2026-03-02"), read=5000
    )
    part = op.get(PATH, headers={"HX-Request": "true"}).content.decode()
    assert part.startswith('<div class="ct-stack" id="cluster"')
    assert 'hx-trigger="every 2s"' in part
    text = words(part)
    assert "gpu1 Syncing now" in text
    assert "Sync of 1 Mar 2026, 00:00 – 2 Mar 2026, 00:00, running for" in text
    assert "5,000 rows imported so far." in text
    assert 'value="pull" disabled' in part


def test_runs_that_the_scheduler_lost_are_listed_with_what_to_do(op: Client) -> None:
    cluster = a_connection().cluster
    job = a_job(job_id="77", gpus=4, started="2026-03-01 10:00", ended=None, seen_until="2026-03-01 11:59")
    slurm = Scheduler([job])
    slurm.pulled(cluster, "2026-03-01 12:00")
    slurm.forgotten = {job.source_key}
    slurm.pulled(cluster, "2026-03-01 12:05")
    text = shown(op)
    assert "Open runs unknown to the scheduler: 1 run" in text
    assert "77 vision ben 4 × a100 1 Mar 2026, 10:00 1 Mar 2026, 11:59 1 Mar 2026, 12:05" in text
    assert "sacctmgr show runawayjobs" in text


def test_op_tests_the_connection_and_reads_what_mends_it(op: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    a_connection()
    mend = "sacctmgr modify user clustertab set AdminLevel=Operator"
    findings = [
        Finding(Level.OK, "Address", "slurmrestd answers."),
        Finding(Level.WARN, "Clock", "The clocks differ by 40 s."),
        Finding(Level.FAIL, "AdminLevel", "The user <b>is</b> no operator.", mend),
    ]
    monkeypatch.setattr(connection_test, "examine", lambda *, cluster, clock: findings)
    assert "Test connection" in shown(op)
    html = op.post(PATH, {"act": "check"}).content.decode()
    text = words(html)
    assert "OK Address slurmrestd answers. Warning Clock The clocks differ by 40 s." in text
    assert "Failed AdminLevel The user" in text
    assert mend in text
    assert "<b>is</b>" not in html
    assert "hx-trigger" not in html  # what was found stays to be read


def test_a_test_of_what_does_not_answer_says_so(op: Client) -> None:
    a_connection(base_url="http://127.0.0.1:9")
    text = words(op.post(PATH, {"act": "check"}).content.decode())
    assert "Failed Address" in text
    assert "127.0.0.1" in text


def test_a_cluster_of_files_is_shown_too_and_can_be_connected(op: Client) -> None:
    cluster = builders.a_cluster()
    builders.ingest(cluster, a_job(), as_of="2026-03-03")
    text = shown(op)
    assert "gpu1 File import" in text
    assert "Sync now" not in text
    assert "hx-trigger" not in op.get(PATH).content.decode()
    assert op.post(PATH, {"act": "pull"}).status_code == 302  # nothing to ask: nothing happens

    answered = op.post(
        f"{PATH}connection/",
        {
            "base_url": "https://slurm.example.org:6820", "user": "clustertab", "new_token": PASSWORDS[0],
            "every": "300", "look_back": "48", "enabled": "on",
        },
    )  # fmt: skip
    assert answered.headers["Location"] == PATH
    assert Connection.objects.get().token.reveal() == PASSWORDS[0]
    assert Cluster.objects.get().kind == ClusterKind.SLURM
    assert "Up to date" not in shown(op)


def test_a_signing_key_that_is_no_text_of_base64_is_said(op: Client) -> None:
    a_connection()
    answered = op.post(f"{PATH}connection/", {"new_jwt_key": "key 😀"})
    assert answered.status_code == 200
    assert "This is not base64" in answered.content.decode()


def test_what_cannot_be_kept_is_said_and_no_secret_comes_back(op: Client) -> None:
    connection = a_connection()
    wrong = {"base_url": "ftp://slurm", "every": "5", "look_back": "48", "new_token": "typed-in-vain",
             "new_headers": "no colon here", "new_jwt_key": "not base64!"}  # fmt: skip
    answered = op.post(f"{PATH}connection/", wrong)
    html = answered.content.decode()
    assert answered.status_code == 200
    for sentence in (
        "write scheme, host and port",
        "Ensure this value is greater than or equal to 30.",
        "Write one header a line, as Name: value.",
        "This is not base64",
        "Enter secrets again: they are never shown.",
    ):
        assert sentence in html
    assert not any(typed in html for typed in ("typed-in-vain", "no colon here", "not base64!", *PASSWORDS))
    connection.refresh_from_db()
    assert connection.token.reveal() == PASSWORDS[0]


def test_the_form_keeps_what_is_left_empty_and_takes_away_what_is_ticked(op: Client) -> None:
    connection = a_connection()
    form = op.get(f"{PATH}connection/").content.decode()
    assert "One is kept; leave empty to keep it." in form
    op.post(
        f"{PATH}connection/",
        {"base_url": connection.base_url, "every": "60", "look_back": "24", "forget": ["headers"]},
    )
    connection.refresh_from_db()
    assert (connection.token.reveal(), bool(connection.headers), connection.every, connection.enabled) == (
        PASSWORDS[0],
        False,
        60,
        False,
    )
    assert "gpu1 Paused" in shown(op)


def test_a_cluster_that_is_not_there_and_a_name_with_a_slash() -> None:
    op = signed_in(an_operator())
    assert op.get("/operator/clusters/nowhere/").status_code == 404
    builders.a_cluster("east/gpu 1?")
    assert 'href="/operator/clusters/east/gpu%201%3F/"' in op.get("/operator/clusters/").content.decode()
    assert op.get("/operator/clusters/east/gpu%201%3F/").status_code == 200
    assert op.get("/operator/clusters/east/gpu%201%3F/connection/").status_code == 200


def test_hours_that_nobody_watched_are_listed_with_what_they_mean(op: Client) -> None:
    cluster = a_connection(builders.a_cluster(kind=ClusterKind.PROMETHEUS), coverage_needed=80).cluster
    hour = int(at("2026-03-01 10:00").timestamp())
    Scheduler(gaps=[(hour + 1800, hour + 3600 + 600)]).pulled(cluster, "2026-03-01 20:00")
    text = shown(op)
    assert "1 Mar 2026, 11:00 83 % sufficient 1 Mar 2026, 10:00 50 % action required" in text
    assert "Below 80 %, the month is closed only with an override." in text
    assert "Coverage required of each hour 80 %" in text
    assert "with missing data" not in shown(op, "/operator/clusters/")  # of a month that is long closed

    begins = int(timezone.now().timestamp()) // 3600 * 3600 - 7200
    cluster.incomplete_hours.create(begins=begins, read=3600, covered=0)
    assert "1 hour with missing data" in shown(op, "/operator/clusters/")


def test_telemetry_has_its_own_standing_on_the_page(op: Client) -> None:
    cluster = a_connection().cluster
    Scheduler().pulled(cluster, "2026-03-01 12:00")
    row = Telemetry.objects.create(
        cluster=cluster, base_url="http://127.0.0.1:9090", token=seal("prom-secret")
    )
    row.complete_through, row.notes = at("2026-03-01 11:00"), "2 values could not be true."
    row.save()
    text = shown(op)
    assert (
        "Telemetry Address http://127.0.0.1:9090 Data through 1 Mar 2026, 11:00 Last successful sync never"
        in text
    )
    assert "Note 2 values could not be true." in text
    assert "Telemetry cannot be read" not in text

    Telemetry.objects.update(last_error="127.0.0.1:9090 does not answer.", failures=1)
    assert (
        "Telemetry cannot be read: 127.0.0.1:9090 does not answer. Usage is still read and billed. "
        "Telemetry is retried automatically, from where it stopped." in shown(op)
    )
    for page in (PATH, f"/admin/clusters/telemetry/{row.pk}/change/"):
        answered = op.get(page).content.decode()
        assert "http://127.0.0.1:9090" in answered
        assert "prom-secret" not in answered
