"""Op tests the connection: each thing that can be wrong is found, said in a sentence, and mended by a command."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clusters.connectors.base import Secret
from clusters.connectors.http import Endpoint
from clusters.connectors.mig import OwnShares, own_shares
from clusters.connectors.slurm.check import Finding, examine
from clusters.connectors.slurm.login import SlurmLogin
from clusters.connectors.slurm.rest import SlurmRest
from tests.fakes.slurm_world import Job, World
from tests.fakes.slurmrestd import StandIn

SUBJECTS = [
    *("Address", "Version", "Token", "slurmctld", "slurmdbd", "AdminLevel", "Cluster"),
    *("AccountingStorageTRES", "Sample", "PrivateData", "Canary", "Clock", "Acting"),
]


def a_slurm(minor: int) -> StandIn:
    """Ben's job has run for an hour, Eve's ended half an hour ago."""
    slurm = StandIn(minor)
    slurm.world = World()
    begun = slurm.now - 3_600
    slurm.world.add(
        Job(1, state="RUNNING", reason="None", submitted=begun, started=begun, gpus=2),
        Job(2, user="eve", state="COMPLETED", submitted=begun, started=begun, ended=slurm.now - 1_800),
    )
    return slurm


@pytest.fixture(params=[38, 40, 44], ids=lambda minor: f"v0.0.{minor}")
def slurm(request: pytest.FixtureRequest) -> Iterator[StandIn]:
    with a_slurm(request.param) as slurm:
        yield slurm


def findings_of(
    slurm: StandIn, user: str = "portal", *, token: str = "", cluster: str = "", shares: OwnShares = ()
) -> dict[str, Finding]:
    login = SlurmLogin(user, Secret(token or slurm.token(user)))
    with SlurmRest(Endpoint(base_url=slurm.url), login, clock=lambda: slurm.now) as rest:
        findings = examine(rest, now=slurm.now, cluster=cluster, shares=shares)
    return {finding.subject: finding for finding in findings}


def bad(findings: dict[str, Finding]) -> dict[str, str]:
    return {name: finding.level.value for name, finding in findings.items() if finding.level != "ok"}


def test_a_slurm_as_it_should_be(slurm: StandIn) -> None:
    findings = findings_of(slurm)
    assert list(findings) == SUBJECTS
    assert bad(findings) == ({"Acting": "warn"} if slurm.minor < 40 else {})
    assert findings["Sample"].sentence == "2 of 2 jobs of the last day carry GPUs."
    assert findings["Clock"].sentence == "Slurm's clock agrees with ours to 0 s."
    assert findings["Canary"].sentence == "The rows (2 with our flags, 2 without) agree."
    assert slurm.writes() == []


def test_nobody_answers() -> None:
    with StandIn(44) as slurm:
        url = slurm.url
    with SlurmRest(Endpoint(base_url=url), SlurmLogin("portal", Secret("x.y.z")), clock=lambda: 1) as rest:
        findings = examine(rest, now=1)
    assert findings[0].level == "fail"
    assert findings[0].sentence.startswith(f"Nothing answers at {url}")
    assert findings[0].mend == "systemctl status slurmrestd"
    assert {finding.sentence for finding in findings[1:2]} == {
        "Not checked, since slurmrestd did not answer."
    }


@pytest.mark.parametrize("token", ["expired", "other key", "of somebody else"])
def test_a_token_that_is_not_accepted(slurm: StandIn, token: str) -> None:
    secret = {
        "expired": slurm.token(expires=slurm.now - 1),
        "other key": slurm.token(key=b"another key of thirty-two bytes!"),
        "of somebody else": slurm.token("eve"),
    }[token]
    findings = findings_of(slurm, token=secret)
    assert findings["Token"].level == "fail"
    assert findings["Token"].mend == "scontrol token username=portal lifespan=31536000"
    sentences = {
        "expired": "expired on",
        "other key": "token of portal",
        "of somebody else": "The token is eve's",
    }
    assert sentences[token] in findings["Token"].sentence
    assert findings["Canary"].sentence == "Not checked, since slurmdbd did not answer."


def test_a_token_that_ends_soon(slurm: StandIn) -> None:
    finding = findings_of(slurm, token=slurm.token(expires=slurm.now + 7_200))["Token"]
    assert (finding.level, finding.mend[:14]) == ("warn", "scontrol token")
    assert finding.sentence.endswith("in 2 hours.")


def test_slurmdbd_is_down(slurm: StandIn) -> None:
    slurm.down.add("slurmdbd")
    findings = findings_of(slurm)
    assert (findings["slurmctld"].level, findings["slurmdbd"].level) == ("ok", "fail")
    assert findings["Token"].level == "ok"  # slurmctld took it
    assert "systemctl status slurmdbd" in findings["slurmdbd"].mend


def test_slurmctld_is_down(slurm: StandIn) -> None:
    slurm.down.add("slurmctld")
    findings = findings_of(slurm)
    assert (findings["slurmctld"].level, findings["slurmctld"].mend) == ("fail", "scontrol ping")
    assert findings["slurmdbd"].level == findings["Sample"].level == "ok"


def test_an_ordinary_user_under_private_data(slurm: StandIn) -> None:
    slurm.private = True
    findings = findings_of(slurm, "ben")
    assert bad(findings) == {"AdminLevel": "fail", "PrivateData": "fail", "Acting": "warn"}
    assert findings["PrivateData"].mend == "sacctmgr modify user ben set adminlevel=Operator"


def test_an_ordinary_user_who_still_sees_others(slurm: StandIn) -> None:
    assert bad(findings_of(slurm, "ben")) == {"AdminLevel": "fail", "PrivateData": "warn", "Acting": "warn"}


def test_a_user_that_slurm_does_not_know(slurm: StandIn) -> None:
    finding = findings_of(slurm, "nobody")["AdminLevel"]
    assert (finding.level, finding.mend) == (
        "fail",
        "sacctmgr add user nobody account=root adminlevel=Operator",
    )


@pytest.mark.parametrize(
    ("tracked", "level", "says"),
    [
        ((), "fail", "records no GPUs"),
        (("gres/gpu",), "warn", "without models"),
        (("gres/gpu:a100",), "warn", "by model only (a100)"),
    ],
)
def test_what_slurm_records_of_gpus(slurm: StandIn, tracked: tuple[str, ...], level: str, says: str) -> None:
    slurm.tracked = tracked
    findings = findings_of(slurm)
    finding = findings["AccountingStorageTRES"]
    assert (finding.level, says in finding.sentence) == (level, True)
    assert finding.mend.startswith("AccountingStorageTRES=gres/gpu,gres/gpu:a100 ")
    assert (findings["Sample"].level == "warn") == (tracked == ())


@pytest.mark.parametrize(("apart", "level"), [(3, "ok"), (-30, "warn"), (90, "fail")])
def test_the_clocks_are_apart(slurm: StandIn, apart: int, level: str) -> None:
    ours = slurm.now
    slurm.now += apart
    with SlurmRest(
        Endpoint(base_url=slurm.url), SlurmLogin("portal", Secret(slurm.token())), clock=lambda: ours
    ) as rest:
        finding = next(finding for finding in examine(rest, now=ours) if finding.subject == "Clock")
    assert finding.level == level
    assert f"{abs(apart)} s" in finding.sentence or f"{abs(apart) - 1} s" in finding.sentence
    assert ("ahead of" in finding.sentence) == (apart > 5)


def test_without_a_running_job_slurmctld_tells_its_time(slurm: StandIn) -> None:
    del slurm.world.jobs[1]
    assert findings_of(slurm)["Clock"].sentence == "Slurm's clock agrees with ours to 0 s."


def test_both_times_are_told_where_the_clocks_are_apart() -> None:
    with a_slurm(44) as slurm:
        del slurm.world.jobs[1]
        ours, slurm.now = slurm.now, slurm.now - 40 * 86_400
        login = SlurmLogin("portal", Secret(slurm.token()))
        with SlurmRest(Endpoint(base_url=slurm.url), login, clock=lambda: ours) as rest:
            finding = next(finding for finding in examine(rest, now=ours) if finding.subject == "Clock")
    assert finding.level == "fail"
    assert finding.sentence.startswith(
        "The clock of Slurm says 2026-01-23 04:53:20 UTC and ours says 2026-03-04 04:53:20 UTC: "
        "it is 3,456,000 s behind ours."
    )


@pytest.mark.parametrize("minor", [40, 44])
def test_a_release_that_loses_rows_to_our_flags(minor: int) -> None:
    with a_slurm(minor) as slurm:
        slurm.flags_lose_rows = True
        finding = findings_of(slurm)["Canary"]
    assert finding.level == "fail"
    assert "0 with our flags, 2 without" in finding.sentence


def test_several_clusters_behind_one_slurmdbd(slurm: StandIn) -> None:
    slurm.clusters = ("lab", "west")
    nameless = findings_of(slurm)["Cluster"]
    assert (nameless.level, nameless.mend) == ("fail", 'slurm_cluster = "lab"')
    assert findings_of(slurm, cluster="lab")["Cluster"].level == "ok"
    assert "slurmdbd knows lab, west" in findings_of(slurm, cluster="east")["Cluster"].sentence


@pytest.mark.parametrize("path", ["tres", "clusters", "user", "jobs", "nodes"])
def test_an_answer_of_another_shape_is_a_finding_and_no_crash(slurm: StandIn, path: str) -> None:
    slurm.garbled = path
    findings = findings_of(slurm)
    assert {"fail", "warn"} & {finding.level.value for finding in findings.values()}
    assert all(finding.sentence for finding in findings.values())
    assert "Acting" in findings


@pytest.mark.parametrize(
    ("table", "level", "sentence"),
    [
        ({"a100": {"shard": "1/4"}}, "ok", "The shards of gpu1 are all of their GPUs."),
        ({}, "fail", "Jobs that hold shards of gpu1 go to quarantine"),
        ({"a100": {"shard@gpu2": "1/4"}}, "fail", "Jobs that hold shards of gpu1 go to quarantine"),
        ({"a100": {"shard": "1/4"}, "h100": {"shard": "1/8"}}, "fail", "go to quarantine"),
        ({"a100": {"shard": "1/2"}}, "fail", "its shards are 8 GPUs: too much is billed on gpu1."),
        ({"a100": {"shard": "1/16"}}, "warn", "right only if gres.conf gives shards to so many of the GPUs"),
    ],
)
def test_shards_of_nodes_are_compared_with_the_shares_of_the_cluster(
    slurm: StandIn, table: object, level: str, sentence: str
) -> None:
    slurm.gres = "gpu:a100:4,shard:a100:16"
    slurm.tracked = (*slurm.tracked, "gres/shard")
    finding = findings_of(slurm, shares=own_shares(table, "shares"))["Shards"]
    assert finding.level == level
    assert sentence in finding.sentence


def test_shards_that_slurm_does_not_record_are_lost_for_good(slurm: StandIn) -> None:
    slurm.gres = "gpu:a100:4,shard:16"
    finding = findings_of(slurm, shares=own_shares({"a100": {"shard": "1/4"}}, "shares"))["Shards"]
    assert finding.level == "fail"
    assert "usage is lost for good" in finding.sentence
