"""Op acts on a real Slurm and tests the connection to it: what was done is what Slurm says is so."""

from __future__ import annotations

import io
import json
import re
import time
from contextlib import suppress
from typing import Any

import pytest
from django.core.management import call_command

from clusters import enforcement_plan
from clusters.connectors.acts import ActRefusedError
from clusters.connectors.slurm.acts import SlurmActs
from clusters.enforcement_plan import SchedulerPort
from clusters.job_control import CarriedOut, carry_out
from clusters.models import Act, Cluster
from tests import orders
from tests.integration.slurm_lab import Lab, until
from tests.integration.slurm_pulls import connected
from tests.schedulers import plan_cancel, plan_hold, plan_release

pytestmark = pytest.mark.usefixtures("transactional_db")

TOMORROW = "--begin=now+1day"


def port(cluster: Cluster) -> SchedulerPort:
    return enforcement_plan.open_port(cluster=cluster, clock=lambda: int(time.time()))


def holds(cluster: Cluster, account: str, user: str = "") -> CarriedOut:
    with port(cluster) as opened:
        plan = plan_hold(port=opened, account=account, user=user)
        return carry_out(port=opened, plan=plan, who="op")


def releases(cluster: Cluster, account: str) -> CarriedOut:
    with port(cluster) as opened:
        return carry_out(port=opened, plan=plan_release(port=opened, account=account), who="op")


def cancels(cluster: Cluster, job: str) -> CarriedOut:
    with port(cluster) as opened:
        return carry_out(port=opened, plan=plan_cancel(port=opened, job=int(job)), who="op")


def job_state(lab: Lab, job: str) -> str:
    """`PENDING JobHeldAdmin`, as squeue has it; "" for a job that is over."""
    lines = lab.slurm("squeue", "-h", "-t", "all", "-j", job, "-o", "%T %r").splitlines()
    return lines[0] if lines and not lines[0].startswith(("CANCELLED", "COMPLETED")) else ""


@pytest.mark.sample
def test_jobs_that_wait_are_held_and_released_arrays_too(every_slurm: Lab) -> None:
    cluster = connected(every_slurm)
    waits = every_slurm.submits("ada", "acme_research", "true", "-p", "cpu", TOMORROW)
    array = every_slurm.submits("ada", "acme_research", "true", "-p", "cpu", TOMORROW, "--array=0-2")
    own = every_slurm.submits("ada", "acme_research", "true", "-p", "cpu", "--hold")
    runs = every_slurm.submits("ada", "acme_research", "sleep 300", "-p", "cpu")
    until(lambda: job_state(every_slurm, runs).startswith("RUNNING"))
    try:
        done = holds(cluster, "acme_research", "ada")
        assert done.good
        assert {act.target.partition("@")[0] for act in done.acts} == {f"job {waits}", f"job {array}"}
        assert job_state(every_slurm, waits) == job_state(every_slurm, array) == "PENDING JobHeldAdmin"
        assert job_state(every_slurm, own) == "PENDING JobHeldUser"
        assert job_state(every_slurm, runs) == "RUNNING None"
        assert holds(cluster, "acme_research", "ada").acts == ()

        assert releases(cluster, "acme_research").good
        assert "Held" not in job_state(every_slurm, waits) + job_state(every_slurm, array)
        assert job_state(every_slurm, own) == "PENDING JobHeldUser"
        assert releases(cluster, "acme_research").acts == ()
    finally:
        every_slurm.slurm("scancel", waits, array, own, runs)
        every_slurm.knows(runs, "CANCELLED")  # so that it comes into no later test


def test_a_running_job_and_an_array_are_cancelled(every_slurm: Lab) -> None:
    cluster = connected(every_slurm)
    runs = every_slurm.submits("cyd", "globex", "sleep 300", "-p", "cpu")
    array = every_slurm.submits("cyd", "globex", "sleep 300", "-p", "cpu", "--array=0-3%1")
    until(lambda: job_state(every_slurm, runs).startswith("RUNNING"))
    assert cancels(cluster, runs).good
    assert cancels(cluster, array).good
    until(lambda: not job_state(every_slurm, runs))
    until(lambda: every_slurm.slurm("squeue", "-h", "-A", "globex", "-t", "PD,R", "-j", array) == "")
    with port(cluster) as opened:
        assert plan_cancel(port=opened, job=int(runs)).steps == ()
    assert list(Act.objects.values_list("outcome", flat=True)) == ["done", "done"]
    for job in (runs, array):  # so that they come into no later test
        every_slurm.knows(job, "CANCELLED")


def test_a_heterogeneous_job_is_held_as_a_whole_and_its_parts_are_not_cancelled_alone(slurm_lab: Lab) -> None:
    cluster = connected(slurm_lab)
    parts = ("-p", "cpu", TOMORROW, ":", "-A", "globex", "-p", "h100", "--gres=gpu:h100:1")
    first = slurm_lab.submits("cyd", "globex", "true", *parts)
    second = str(int(first) + 1)
    try:
        assert holds(cluster, "globex", "cyd").good
        assert job_state(slurm_lab, first) == job_state(slurm_lab, second) == "PENDING JobHeldAdmin"
        assert releases(cluster, "globex").good
        assert "Held" not in job_state(slurm_lab, first) + job_state(slurm_lab, second)
        (part,) = cancels(cluster, second).acts
        assert (part.outcome, "heterogeneous" in part.error) == ("failed", True)
        assert cancels(cluster, first).good
        assert job_state(slurm_lab, first) == job_state(slurm_lab, second) == ""
    finally:
        slurm_lab.slurm("scancel", first)


def test_an_ordinary_user_can_act_on_nobody_elses_jobs(slurm_lab: Lab) -> None:
    cluster = connected(slurm_lab, user="eve")
    job = slurm_lab.submits("cyd", "globex", "true", "-p", "cpu", TOMORROW)
    try:
        (hold,) = holds(cluster, "globex", "cyd").acts
        (cancelled,) = cancels(cluster, job).acts
        assert (hold.outcome, cancelled.outcome) == ("failed", "failed")
        assert "`sacctmgr modify user eve set adminlevel=Operator`" in hold.error
        assert "`sacctmgr modify user eve set adminlevel=Operator`" in cancelled.error
        assert job_state(slurm_lab, job) == "PENDING BeginTime"
    finally:
        slurm_lab.slurm("scancel", job)


def test_limits_of_this_release_are_refused_and_slurmrestd_lives(slurm_lab: Lab) -> None:
    cluster = connected(slurm_lab)
    before = slurm_lab.slurm("sacctmgr", "-nP", "show", "assoc", "format=account,user,grptres,grptresmins")
    with (
        port(cluster) as opened,
        pytest.raises(
            ActRefusedError, match=rf"\({re.escape(slurm_lab.version)}\) cannot have its limits set"
        ),
    ):
        enforcement_plan.plan_block(port=opened, account="globex")
    assert before == slurm_lab.slurm(
        "sacctmgr", "-nP", "show", "assoc", "format=account,user,grptres,grptresmins"
    )
    assert slurm_lab.runs("slurmrestd")


def group_limits(lab: Lab, account: str) -> str:
    """GrpTRES, GrpTRESMins and GrpSubmitJobs of the account itself, as sacctmgr has them."""
    output = lab.slurm(
        "sacctmgr",
        "-nP",
        "show",
        "assoc",
        f"account={account}",
        "user=",
        "format=GrpTRES,GrpTRESMins,GrpSubmitJobs",
    )
    return output.strip()


def test_an_account_is_blocked_by_its_limits_and_has_its_own_again(every_slurm: Lab) -> None:
    cluster = connected(every_slurm)
    with port(cluster) as opened:
        assert isinstance(opened.acts, SlurmActs)
        try:
            opened.acts.refuse_limits()
        except ActRefusedError:
            pytest.skip(f"Slurm {every_slurm.version} cannot have its limits set over REST.")
    for account, before, blocked in (
        ("globex", "|gres/gpu=6000|", "gres/gpu=0|gres/gpu=6000|0"),
        ("initech", "gres/gpu=2||", "gres/gpu=0||0"),
    ):
        assert group_limits(every_slurm, account) == before
        with port(cluster) as opened:
            plan = enforcement_plan.plan_block(port=opened, account=account, submits=True)
            assert carry_out(port=opened, plan=plan, who="op").good
        assert group_limits(every_slurm, account) == blocked
        with port(cluster) as opened:
            plan = enforcement_plan.plan_unblock(port=opened, account=account)
            assert carry_out(port=opened, plan=plan, who="op").good
        assert group_limits(every_slurm, account) == before


@pytest.mark.larger
def test_three_reasons_come_and_go_in_every_order(every_slurm: Lab) -> None:
    cluster = connected(every_slurm)
    with port(cluster) as opened:
        assert isinstance(opened.acts, SlurmActs)
        try:
            opened.acts.refuse_limits()
        except ActRefusedError:
            pytest.skip(f"Slurm {every_slurm.version} cannot have its limits set over REST.")
    before = group_limits(every_slurm, "initech")
    assert before == "gres/gpu=2||"

    def look(stands: set[str]) -> None:
        submits = "0" if orders.refuses(stands) else ""
        expected = f"gres/gpu=0||{submits}" if stands else before
        assert group_limits(every_slurm, "initech") == expected, stands

    for order in orders.orders():
        orders.play(order, account="initech", opens=lambda: port(cluster), look=look)


def test_a_job_waits_until_the_last_reason_is_taken_back(every_slurm: Lab) -> None:
    cluster = connected(every_slurm)
    with port(cluster) as opened:
        assert isinstance(opened.acts, SlurmActs)
        try:
            opened.acts.refuse_limits()
        except ActRefusedError:
            pytest.skip(f"Slurm {every_slurm.version} cannot have its limits set over REST.")

        def carries_out(plan: enforcement_plan.Plan) -> None:
            assert carry_out(port=opened, plan=plan, who="op").good

        for source in ("dunning", "operator"):
            carries_out(enforcement_plan.plan_block(port=opened, account="globex", source=source))
        job = every_slurm.submits("cyd", "globex", "sleep 300", "-p", "a100", "--gres=gpu:a100:1")
        try:
            until(lambda: "Assoc" in job_state(every_slurm, job))
            carries_out(enforcement_plan.plan_unblock(port=opened, account="globex", source="operator"))
            time.sleep(3)  # slurmctld has looked again by then
            assert job_state(every_slurm, job).startswith("PENDING Assoc")
            carries_out(enforcement_plan.plan_unblock(port=opened, account="globex", source="dunning"))
            until(lambda: job_state(every_slurm, job).startswith("RUNNING"))
        finally:
            every_slurm.slurm("scancel", job)
            every_slurm.knows(job, "CANCELLED")


def test_while_slurmctld_is_away_an_act_is_unknown_and_later_settled(slurm_lab: Lab) -> None:
    cluster = connected(slurm_lab)
    job = slurm_lab.submits("cyd", "globex", "true", "-p", "cpu", TOMORROW)
    try:
        with port(cluster) as opened:
            plan = plan_hold(port=opened, account="globex", user="cyd")

            class Away(SlurmActs):
                def _update(self, number: int, *, hold: bool) -> None:
                    super()._update(number, hold=hold)
                    slurm_lab.stop("slurmctld")  # it has done it, and cannot be asked any more

            assert isinstance(opened.acts, SlurmActs)
            away = SchedulerPort(cluster, Away(opened.acts.rest))
            (act,) = carry_out(port=away, plan=plan, who="op").acts
            assert act.outcome == "unknown"
            slurm_lab.start()
            assert holds(cluster, "globex", "cyd").acts == ()
            act.refresh_from_db()
            assert (act.outcome, act.error) == ("done", "")
    finally:
        slurm_lab.start()
        slurm_lab.slurm("scancel", job)


def findings(cluster: Cluster) -> dict[str, dict[str, Any]]:
    output = io.StringIO()
    with suppress(SystemExit):  # the answer tells how it went
        call_command("test_connection", cluster.name, "--json", stdout=output)
    checks = json.loads(output.getvalue())["findings"]
    return {check["subject"]: check for check in checks}


def bad(checks: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {name: check["level"] for name, check in checks.items() if check["level"] != "ok"}


def test_the_labs_connection_is_as_it_should_be(every_slurm: Lab) -> None:
    checks = findings(connected(every_slurm))
    release = tuple(int(part) for part in every_slurm.version.split(".")[:2])
    assert bad(checks) == ({"Acting": "warn"} if release < (23, 11) else {})  # limits
    assert checks["Version"]["sentence"].startswith(f"Slurm {every_slurm.version}, read over v0.0.")
    assert checks["AccountingStorageTRES"]["sentence"] == "Slurm records gres/gpu and the models a100, h100."
    assert "agrees with ours" in checks["Clock"]["sentence"]


def test_what_is_wrong_with_a_token_or_its_user_is_found(slurm_lab: Lab) -> None:
    good = slurm_lab.token()
    assert bad(findings(connected(slurm_lab, "soon", token=good))) == {"Token": "warn", "Acting": "warn"}
    for name, user, token in (("broken", "portal", f"{good}x"), ("other", "portal", slurm_lab.token("eve"))):
        assert findings(connected(slurm_lab, name, user=user, token=token))["Token"]["level"] == "fail"
    ordinary = findings(connected(slurm_lab, "ordinary", user="eve"))
    assert (ordinary["AdminLevel"]["level"], ordinary["PrivateData"]["level"]) == ("fail", "warn")
    with slurm_lab.configured(slurmdbd="PrivateData=jobs"):
        hidden = findings(connected(slurm_lab, "hidden", user="eve"))
        assert hidden["PrivateData"]["level"] == "fail"
        assert bad(findings(connected(slurm_lab, "seen"))) == {"Acting": "warn"}


def test_daemons_that_are_down_are_told_apart_from_a_bad_token(slurm_lab: Lab) -> None:
    cluster = connected(slurm_lab)
    try:
        slurm_lab.stop("slurmdbd")
        checks = findings(cluster)
        assert (checks["Token"]["level"], checks["slurmdbd"]["level"]) == ("ok", "fail")
        slurm_lab.start()
        slurm_lab.stop("slurmctld")
        checks = findings(cluster)
        assert (checks["Token"]["level"], checks["slurmctld"]["level"]) == ("ok", "fail")
        assert checks["Sample"]["level"] == "ok"
        slurm_lab.stop("slurmrestd")
        checks = findings(cluster)
        assert (checks["Address"]["level"], checks["Address"]["mend"]) == (
            "fail",
            "systemctl status slurmrestd",
        )
    finally:
        slurm_lab.start()
