"""`deploy/agent/` sends Slurm's accounting to a real web process: it is billed as by an import of the files."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import call_command

from clusters.models import Cluster, UsageRecord, UsageRevision
from portal.core.tenants.models import Tenant
from tests.contracts.sacct_exports import DATA
from tests.integration.agents import (
    Agent,
    a_pushed_cluster,
    accounts_of,
    an_imported_cluster,
    an_operators_key,
    ledger,
    quarantine,
    recent,
    seconds,
)
from tests.integration.operators import accounting
from tests.integration.slurm_lab import until
from tests.integration.web_process import WebProcess
from tests.stories import prove
from tests.tiers import seeds

pytestmark = pytest.mark.usefixtures("transactional_db")

ROWS = 3_000
GENERATED = [f"acc{number:02d}" for number in range(4)]


class Twins:
    """A cluster that is pushed to and one that files are imported into, with the same accounts."""

    def __init__(self, *accounts: str) -> None:
        self.pushed: tuple[Cluster, Tenant] = a_pushed_cluster(*accounts)
        self.imported: tuple[Cluster, Tenant] = an_imported_cluster(*accounts)
        self.secret = an_operators_key()

    def have_the_same(self, *files: Path) -> None:
        """After an import of the files: each record, each second, each row in quarantine."""
        self.imports(*files)
        assert ledger(self.pushed[0]) == ledger(self.imported[0])
        assert seconds(self.pushed[1]) == seconds(self.imported[1]) != []
        assert quarantine(self.pushed[0]) == quarantine(self.imported[0])
        prove()

    @staticmethod
    def imports(*files: Path) -> None:
        for file in files:
            call_command("import_usage", "files", str(file), verbosity=0)

    @property
    def watermark(self) -> int:
        """Of the cluster that is pushed to, as an epoch second."""
        through = Cluster.objects.get(pk=self.pushed[0].pk).complete_through
        return 0 if through is None else int(through.timestamp())


@pytest.fixture
def web(database_url: str, tmp_path: Path) -> Iterator[WebProcess]:
    with WebProcess(database_url, tmp_path) as process:
        yield process


def records() -> int:
    return UsageRecord.objects.filter(cluster__name="own").count()


def a_generated_export(agent: Agent, name: str = "export.sacct") -> Path:
    """Of two months with short, long, suspended and running jobs, the last of which ended lately."""
    file = agent.inbox / name
    file.write_text(recent(accounting(file, rows=ROWS, accounts=len(GENERATED)).read_text()))
    return file


@pytest.mark.skipif(not DATA.exists(), reason="The records are absent: put them at ../shared/data.")
@pytest.mark.parametrize(
    "name",
    [
        "fau_alex_fritz_2023-02",
        "supercloud_2021-01_2021-03",
        "ubccr_pozidriv_2016-12",
        pytest.param("philly_2017-09_2017-11", marks=pytest.mark.long),
    ],
)
def test_api_050_a_real_export_that_is_pushed_bills_the_seconds_of_its_import(
    name: str, web: WebProcess, tmp_path: Path
) -> None:
    text = recent(DATA / "slurm" / f"{name}.sacct.gz")
    twins = Twins(*accounts_of(text))
    agent = Agent(tmp_path / "agent", web.url, twins.secret)
    file = agent.inbox / "export.sacct"
    file.write_text(text)
    assert twins.secret not in agent.does("--check")
    assert records() == 0
    assert twins.secret not in agent.does("--once")
    assert agent.does("--once") == ""  # all is known
    twins.have_the_same(file)
    known = records()
    (agent.state / "spool.db").unlink()  # on another disk, say, all is sent again
    assert {*re.findall(r"\d (accepted|changed|duplicate)", agent.does("--once"))} == {"duplicate"}
    assert records() == known


@pytest.mark.parametrize("seed", seeds(range(6), short=1))
def test_killed_at_any_moment_it_sends_each_row_once(seed: int, web: WebProcess, tmp_path: Path) -> None:
    twins = Twins(*GENERATED)
    agent = Agent(tmp_path / "agent", web.url, twins.secret)
    file = a_generated_export(agent)
    dice = random.Random(seed)
    before = time.monotonic()
    agent.does("--check")
    start = time.monotonic() - before  # what a start takes on this machine
    for _ in range(8):
        process = agent.begins("--once")
        time.sleep(dice.uniform(0, 2 * start))
        process.kill()
        process.wait()
    agent.does("--once")
    assert agent.does("--once") == ""
    twins.have_the_same(file)


def test_killed_servers_and_outages_lose_nothing(web: WebProcess, tmp_path: Path) -> None:
    twins = Twins(*GENERATED)
    agent = Agent(tmp_path / "agent", web.url, twins.secret)
    file = a_generated_export(agent)
    web.kill()
    process = agent.begins()
    until(lambda: "ClusterTab does not answer" in agent.log)
    assert f"{ROWS} rows to send" in agent.log
    web.start()
    until(lambda: records() > 0)
    web.kill()
    until(lambda: agent.log.count("ClusterTab does not answer") > 1 or records() == ROWS)
    web.start()
    until(lambda: records() == ROWS)
    assert "Another agent works" in agent.does("--once", code=1)
    process.terminate()
    assert process.wait(60) == 0
    twins.have_the_same(file)


def test_running_jobs_grow_end_and_are_restated(web: WebProcess, tmp_path: Path) -> None:
    """An export of each day, as cron drops it: requeued, an array, a het job, suspended, and one that was corrected."""
    twins = Twins("vision")
    agent = Agent(tmp_path / "agent", web.url, twins.secret)
    day = int(time.time()) // 86_400 * 86_400 - 10 * 86_400
    files = []
    for number, rows in enumerate(THREE_DAYS, 1):
        end = day + number * 86_400
        name = time.strftime("lab.as-of-%Y-%m-%dT%H%M%SZ.sacct", time.gmtime(end))
        file = agent.inbox / name
        file.write_text("\n".join([HEADER, *(_row(row, day) for row in rows)]) + "\n")
        files.append(file)
        agent.does("--once")
        assert twins.watermark == end
    twins.have_the_same(*files)
    own = UsageRecord.objects.filter(cluster__name="own")
    revisions = UsageRevision.objects.filter(record_id__in=list(own.values_list("pk", flat=True)))
    assert sorted(revisions.values_list("job_id", flat=True)) == ["20+0", "20+1", "7", "8_1", "8_[2-4]"]
    assert not own.filter(ended=None).exists()


def test_of_two_looks_in_one_second_the_later_one_counts(web: WebProcess, tmp_path: Path) -> None:
    twins = Twins("vision")
    agent = Agent(tmp_path / "agent", web.url, twins.secret)
    day = int(time.time()) // 86_400 * 86_400 - 10 * 86_400
    jobs = [str(number) for number in range(1, 9)]
    running = [_row((job, job, "RUNNING", 0, HOUR, None, HOUR, 0), day) for job in jobs]
    ended = [_row((job, job, "COMPLETED", 0, HOUR, 2 * HOUR, HOUR, 0), day) for job in jobs]
    moment = time.strftime("%Y-%m-%dT%H%M%SZ", time.gmtime(day + 2 * HOUR))
    for name, rows in (("first", running), ("second", ended)):
        (agent.inbox / f"{name}.as-of-{moment}.sacct").write_text("\n".join([HEADER, *rows]) + "\n")
        agent.does("--once")
    assert records() == len(jobs)
    assert not UsageRecord.objects.filter(cluster__name="own", ended=None).exists()


HEADER = (
    "JobIDRaw|JobID|User|Account|Partition|State|Submit|Start|End|ElapsedRaw|Suspended|AllocTRES|NodeList"
)
GPUS = "cpu=8,gres/gpu:a100_1g.5gb=2,mem=62.50G,node=1"
HOUR = 3600
THREE_DAYS: list[list[tuple[str, str, str, int, int | None, int | None, int, int]]] = [
    [  # job, shown as, state, and in seconds: submitted, started, ended, elapsed, suspended
        ("7", "7", "PREEMPTED", 0, HOUR, 2 * HOUR, HOUR, 0),
        ("7", "7", "RUNNING", 2 * HOUR, 3 * HOUR, None, 20 * HOUR, 600),
        ("8", "8_1", "RUNNING", HOUR, HOUR, None, 23 * HOUR, 0),
        ("9", "8_[2-4]", "PENDING", HOUR, None, None, 0, 0),
        ("20", "20+0", "RUNNING", HOUR, HOUR, None, 23 * HOUR, 0),
        ("21", "20+1", "COMPLETED", HOUR, HOUR, 5 * HOUR, 4 * HOUR, 0),
    ],
    [
        ("7", "7", "COMPLETED", 2 * HOUR, 3 * HOUR, 30 * HOUR, 26 * HOUR, HOUR),
        ("8", "8_1", "RUNNING", HOUR, HOUR, None, 47 * HOUR, 0),
        ("9", "8_2", "CANCELLED by 7", HOUR, 31 * HOUR, 32 * HOUR, HOUR, 0),
        ("20", "20+0", "COMPLETED", HOUR, HOUR, 40 * HOUR, 39 * HOUR, 0),
        ("21", "20+1", "COMPLETED", HOUR, HOUR, 6 * HOUR, 5 * HOUR, 0),
    ],
    [("8", "8_1", "NODE_FAIL", HOUR, HOUR, 49 * HOUR, 48 * HOUR, 0)],
]


def _row(row: tuple[str, str, str, int, int | None, int | None, int, int], day: int) -> str:
    job, shown, state, *moments, elapsed, suspended = row
    submit, start, end = (
        "Unknown" if moment is None else time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(day + moment))
        for moment in moments
    )
    stood_still = time.strftime("%H:%M:%S", time.gmtime(suspended))
    return (
        f"{job}|{shown}|ben|vision|gpu|{state}|{submit}|{start}|{end}|{elapsed}|{stood_still}|"
        f"{GPUS if start != 'Unknown' else ''}|gpu1"
    )


def test_what_is_rejected_is_kept_with_the_reason_and_can_be_sent_again(
    web: WebProcess, tmp_path: Path
) -> None:
    twins = Twins("vision")
    agent = Agent(tmp_path / "agent", web.url, twins.secret)
    day = int(time.time()) // 86_400 * 86_400 - 10 * 86_400
    good, bad = _row(THREE_DAYS[0][0], day), _row(THREE_DAYS[0][5], day).replace("=62.50G", "=much")
    file = agent.inbox / "export.sacct"
    file.write_text("\n".join([HEADER, good, bad, good.replace("vision", "vi\nsion"), "cut|off"]) + "\n")
    said = agent.does("--once")
    kept = [json.loads(line) for line in (agent.state / "rejected.jsonl").read_text().splitlines()]
    assert [entry["event"]["data"]["row"] for entry in kept[:1]] == [bad + "\n"]
    assert "memory" in kept[0]["reason"]
    for entry in kept:
        assert f"Rejected {entry['event']['id']}: {entry['reason']}" in said
    twins.have_the_same(file)
    assert len(kept) == len(quarantine(twins.pushed[0])) > 1
    assert f"{len(kept)} rejected" in agent.does("--once", "--retry-rejected")
    assert agent.does("--once") == ""


def test_check_says_what_is_wrong_and_changes_nothing(web: WebProcess, tmp_path: Path) -> None:
    Twins("vision")
    agent = Agent(tmp_path / "agent", web.url, "ct_live_" + "x" * 40)
    assert "401" in agent.does("--check", code=1)
    other = Agent(tmp_path / "other", web.url, an_operators_key(), cluster="files")
    assert "billed twice" in other.does("--check", code=1)
    nowhere = Agent(tmp_path / "nowhere", web.url, an_operators_key(), cluster="moon")
    assert "There is no cluster 'moon'" in nowhere.does("--check", code=1)
    for one in (agent, other, nowhere):
        assert list(one.state.iterdir()) == []
