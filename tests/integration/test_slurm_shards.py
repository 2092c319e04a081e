"""Ada's jobs hold shards of a real Slurm's GPUs: read over REST and from sacct, each is its part of a GPU.

The lab's own Slurm has no shards, so that these are labs of a script with shards in slurm.conf and gres.conf. Their
slurmd shares devices that are empty files: which GPU a shard is of is Slurm's own choice, what it computes is nothing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from clusters.connectors.acts import Ceiling
from clusters.connectors.base import BadRow, Row, Secret, UsageFact
from clusters.connectors.http import Endpoint
from clusters.connectors.mig import OwnShares, own_shares
from clusters.connectors.sacct.text_export import open_export
from clusters.connectors.shards import shard_rows
from clusters.connectors.slurm.acts import LIMITS_FROM, SlurmActs
from clusters.connectors.slurm.check import Finding, examine
from clusters.connectors.slurm.connector import SlurmConnector
from clusters.connectors.slurm.login import SlurmLogin
from clusters.connectors.slurm.rest import SlurmRest
from tests.integration.slurm_lab import SCRIPT, Lab, of_script, suites, until, why_not

LOCAL = """
GresTypes=gpu,shard
AccountingStorageTRES=gres/gpu,gres/gpu:a100,gres/gpu:h100,gres/shard,gres/shard:a100,gres/shard:h100
"""
CHANGES = {  # four shards on each a100; on each h100 two
    "Gres=gpu:a100:4 ": "Gres=gpu:a100:4,shard:16 ",
    "Gres=gpu:h100:8 ": "Gres=gpu:h100:8,shard:16 ",
    'a100-[0-3]"; done': 'a100-[0-3]"; echo "NodeName=gpu$i Name=shard Count=16"; done',
    'h100-[0-7]"; done': 'h100-[0-7]"; echo "NodeName=gpu$i Name=shard Count=16"; done',
}
SHARES = own_shares({"a100": {"shard@gpu[1-2]": "1/4"}, "h100": {"shard@gpu[3-4]": "1/2"}}, "shares")
FORMAT = (
    "JobIDRaw,JobID,Cluster,User,Account,Partition,QOS,State,ExitCode,Submit,Eligible,Start,End,ElapsedRaw,Suspended,"
    "TimelimitRaw,NNodes,NCPUS,ReqTRES,AllocTRES,JobName,NodeList"
)


@pytest.fixture(scope="module", params=suites(), ids=lambda suite: suite or "installed")
def sharing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    if reason := why_not():
        pytest.skip(reason)
    text = SCRIPT.read_text(encoding="utf-8")
    for line, changed in CHANGES.items():
        assert line in text
        text = text.replace(line, changed)
    script = tmp_path_factory.mktemp("lab") / "slurm-lab"
    script.write_text(text, encoding="utf-8")
    script.chmod(0o755)
    with of_script(script, request.param, local=LOCAL) as lab:
        yield lab


def submitted(lab: Lab, *options: str) -> str:
    return lab.submits("ada", "acme_research", "sleep 2", *options)


def of_rest(lab: Lab, shares: OwnShares) -> tuple[dict[str, Row], dict[str, list[tuple[str, int]]]]:
    """Rows by job, and the GPUs of each node."""
    now = int(time.time())
    with SlurmConnector(
        Endpoint(base_url=lab.url),
        login=login(lab),
        cluster="",
        clock=lambda: int(time.time()),
        shares=shares,
    ) as connector:
        rows = list(connector.usage(since=lab.began - 60, until=now, open_keys=()))
        nodes: dict[str, list[tuple[str, int]]] = {}
        for seen in connector.reading.nodes or ():
            nodes.setdefault(seen.name, []).append((seen.gpu_model, seen.gpus))
    return {row.source_key.partition("@")[0]: row for row in rows}, nodes


def of_sacct(lab: Lab, shares: OwnShares, file: Path) -> dict[str, Row]:
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(lab.began - 60))
    file.write_text(lab.slurm("sacct", "-aXPD", "-S", since, "-o", FORMAT))
    rows = open_export(file, zone=ZoneInfo("UTC"), shares=shares).rows()
    return {row.source_key.partition("@")[0]: row for row in rows}


def login(lab: Lab) -> SlurmLogin:
    return SlurmLogin("portal", Secret(lab.token()))


def finding(lab: Lab, shares: OwnShares) -> Finding:
    with SlurmRest(Endpoint(base_url=lab.url), login(lab), clock=lambda: int(time.time())) as rest:
        (of_shards,) = [
            one for one in examine(rest, now=int(time.time()), shares=shares) if one.subject == "Shards"
        ]
    return of_shards


def test_shards_of_a_real_slurm_are_their_parts_of_gpus(sharing: Lab, tmp_path: Path) -> None:
    jobs = {
        submitted(sharing, "-p", "a100", "--gres=shard:2"): (2, "a100", (1, 4)),
        submitted(sharing, "-p", "a100", "--gres=shard:a100:3"): (3, "a100", (1, 4)),
        submitted(sharing, "-p", "a100", "-N2", "--gres=shard:2"): (4, "a100", (1, 4)),
        submitted(sharing, "-p", "h100", "--gres=shard:1"): (1, "h100", (1, 2)),
        submitted(sharing, "-p", "h100", "--gres=gpu:h100:1"): (1, "h100", (1, 1)),
    }
    for job in jobs:
        sharing.has_ended(job)
    rows, nodes = of_rest(sharing, SHARES)
    exported = of_sacct(sharing, SHARES, tmp_path / "export.txt")
    for job, (gpus, model, share) in jobs.items():
        for row in (rows[job], exported[job]):
            assert isinstance(row, UsageFact), row
            assert (row.gpus, row.gpu_model, row.mig_profile, row.gpu_share) == (gpus, model, "", share)
    held = [row.gpus * Fraction(*row.gpu_share) for row in rows.values() if isinstance(row, UsageFact)]
    assert sum(held) == Fraction(2, 4) + Fraction(3, 4) + 1 + Fraction(1, 2) + 1
    assert {name: counts for name, counts in nodes.items() if counts} == {
        "gpu1": [("a100", 4)], "gpu2": [("a100", 4)], "gpu3": [("h100", 8)], "gpu4": [("h100", 8)],
    }  # fmt: skip
    # Slurm counts shards without their model, whatever AccountingStorageTRES says.
    lists = sharing.slurm("sacct", "-anXPD", "-j", ",".join(jobs), "-o", "AllocTRES")
    assert re.findall(r"gres/shard[^,\n]*", lists) == [f"gres/shard={number}" for number in (2, 3, 4, 1)]


def test_shards_of_nodes_that_no_row_names_are_quarantined(sharing: Lab, tmp_path: Path) -> None:
    job = submitted(sharing, "-p", "h100", "--gres=shard:1")
    sharing.has_ended(job)
    of_a100 = own_shares({"a100": {"shard@gpu[1-2]": "1/4"}}, "shares")
    of_both = own_shares({"a100": {"shard": "1/4"}, "h100": {"shard": "1/2"}}, "shares")
    until(lambda: job in of_rest(sharing, of_a100)[0])  # it is in a window once its second is over
    for shares, code in ((of_a100, "tres-shard"), (of_both, "tres-shard-parts")):
        for row in (
            of_rest(sharing, shares)[0][job],
            of_sacct(sharing, shares, tmp_path / "export.txt")[job],
        ):
            assert isinstance(row, BadRow)
            assert row.code == code


def test_no_job_holds_gpus_and_shards(sharing: Lab) -> None:
    """What the reader does with such rows is therefore not seen from a live source."""
    with pytest.raises(AssertionError, match=r"Invalid generic resource"):
        submitted(sharing, "-p", "a100", "--gres=gpu:a100:1,shard:2")


def test_a_waiting_job_with_shards_is_held_with_the_gpu_jobs(sharing: Lab) -> None:
    job = sharing.submits("cyd", "globex", "sleep 1", "-p", "a100", "--gres=shard:1", "--begin=now+600")
    with SlurmRest(Endpoint(base_url=sharing.url), login(sharing), clock=lambda: int(time.time())) as rest:
        (seen,) = SlurmActs(rest).job(int(job))
    sharing.slurm("scancel", job)
    assert (seen.gpu, seen.waits) == (True, True)


def test_a_block_keeps_jobs_with_shards_from_starting(sharing: Lab) -> None:
    with SlurmRest(Endpoint(base_url=sharing.url), login(sharing), clock=lambda: int(time.time())) as rest:
        acts = SlurmActs(rest, shards=shard_rows(SHARES))
        if rest.api.number < LIMITS_FROM:
            pytest.skip("Before 23.11 no limits can be set over slurmrestd.")
        before = acts.limits("globex")
        demand = acts.demand("globex", now=before, submits=False)
        acts.set_limits("globex", {**before, **demand.limits}, before=before)
        job = sharing.submits("cyd", "globex", "sleep 1", "-p", "a100", "--gres=shard:1")
        until(lambda: "AssocGrpGRES" in sharing.slurm("squeue", "-h", "-j", job, "-o", "%r"))
        acts.set_limits("globex", before, before=acts.limits("globex"))
        sharing.has_ended(job)


def test_a_limit_of_gpus_is_one_of_as_many_gpus_in_shards(sharing: Lab) -> None:
    with SlurmRest(Endpoint(base_url=sharing.url), login(sharing), clock=lambda: int(time.time())) as rest:
        acts = SlurmActs(rest, shards=shard_rows(SHARES))
        if rest.api.number < LIMITS_FROM:
            pytest.skip("Before 23.11 no limits can be set over slurmrestd.")
        before = acts.limits("globex")
        demand = acts.ceiling("globex", Ceiling(gpus={"": 1}))
        assert demand.limits == {"GrpTRES=gres/gpu": 1, "GrpTRES=gres/shard": 2}  # the largest are halves
        acts.set_limits("globex", {**before, **demand.limits}, before=before)
        runs, waits = (
            sharing.submits("cyd", "globex", "sleep 300", "-p", "h100", f"--gres=shard:{number}")
            for number in (2, 1)
        )
        sharing.is_running(runs)
        until(lambda: "AssocGrpGRES" in sharing.slurm("squeue", "-h", "-j", waits, "-o", "%r"))
        for job in (runs, waits):
            sharing.slurm("scancel", job)
        acts.set_limits("globex", before, before=acts.limits("globex"))
        sharing.has_ended(runs)


def test_connection_test_compares_a_real_slurms_nodes(sharing: Lab) -> None:
    assert (finding(sharing, SHARES).level, finding(sharing, ()).level) == ("ok", "fail")
    assert "gpu1, gpu2, gpu3, gpu4" in finding(sharing, ()).sentence
    twice = own_shares({"": {"shard": "1/2"}}, "shares")
    assert "gpu1 lists 16 shards and 4 GPUs" in finding(sharing, twice).sentence


def test_nodes_list_uneven_shards_as_even_ones(sharing: Lab) -> None:
    """Why the operator says what a shard is: all sixteen may be of one GPU, and the node's list is the same."""
    before, script = listed(sharing), Path(sharing.script)
    even = 'a100-[0-3]"; echo "NodeName=gpu$i Name=shard Count=16"'
    uneven = f'{even[:-1]} File=$DIR/dev/a100-0"'
    script.write_text(script.read_text(encoding="utf-8").replace(even, uneven), encoding="utf-8")
    for daemon in ("slurmctld", "slurmd-gpu1", "slurmd-gpu2"):
        sharing.stop(daemon)
    sharing.start()
    job = submitted(sharing, "-p", "a100", "--gres=shard:9")  # more than the four of one GPU
    sharing.has_ended(job)
    assert listed(sharing) == before == "gpu:a100:4,shard:a100:16"


def listed(lab: Lab) -> str:
    (text,) = re.findall(r"\bGres=(\S+)", lab.slurm("scontrol", "show", "node", "gpu1"))
    return str(text)
