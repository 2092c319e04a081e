"""Users of a real Slurm submit through cli_filter and job_submit: they are told, refused, and reserved for."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from billing.models import QuotaAction, QuotaEvery, QuotaMeasure, Reservation
from billing.quotas import quotas, review
from billing.quotas.quotas import Setter
from billing.quotas.terms import QuotaTerms
from portal.core.tenants.models import Tenant
from tests.api.door import a_key
from tests.builders import a_plan, a_tenant, an_operator
from tests.integration.slurm_lab import Lab, until
from tests.integration.slurm_plugins import CLI_FILTER, JOB_SUBMIT, Attempt, a_daemon, field, plugins
from tests.integration.slurm_pulls import connected, pull
from tests.integration.web_process import WebProcess

pytestmark = [pytest.mark.usefixtures("transactional_db"), pytest.mark.one_attempt]
EIGHT = ("-A", "globex", "-p", "h100", "--gres=gpu:h100:2", "-t", "4:00:00")  # GPU-hours
COMMENT = "[ClusterTab did not answer: admitted]"


@pytest.fixture
def web(database_url: str, tmp_path: Path) -> Iterator[WebProcess]:
    with WebProcess(database_url, tmp_path) as process:
        yield process


def a_budget(
    tenant: Tenant, hours: int, action: QuotaAction = QuotaAction.NO_GPU_JOBS, *, name: str = "yearly"
) -> None:
    terms = QuotaTerms(
        measure=QuotaMeasure.GPU_HOURS, amount=Decimal(hours), every=QuotaEvery.YEAR, action=action
    )
    moment = datetime.now(UTC).replace(microsecond=0)
    quotas.set_quota(tenant=tenant, name=name, terms=terms, by=Setter.OPERATOR, moment=moment)


def reserved() -> dict[str, tuple[int, int, int]]:
    """GPUs, seconds and tasks at once by the number of the job, of all reservations that stand."""
    rows = Reservation.objects.filter(released_at=None)
    return {row.job_id: (row.gpus, row.seconds, row.at_once) for row in rows}


def test_quota_050_users_are_told_and_refused_and_admitted_as_the_file_says_when_nobody_answers(
    every_slurm: Lab, web: WebProcess, tmp_path: Path
) -> None:
    lab, cluster = every_slurm, connected(every_slurm)
    a_budget(a_tenant("globex", plan=a_plan(charges=["gpu"]), accounts=[(cluster, "globex")]), 10)
    secret = a_key(an_operator(), None, "jobs:reserve", cluster=cluster).secret
    files = set(Path("/tmp").glob("lua_*"))
    try:
        with plugins(lab, CLI_FILTER), a_daemon(lab, web.url, secret, ask={}) as daemon:
            fits = Attempt(lab, "cyd", *EIGHT, "--job-name", f"$(touch {tmp_path}/a)", "--comment", "mine")
            assert (fits.code, fits.message) == (0, ""), fits.stderr
            until(lambda: reserved() == {fits.job: (2, 14400, 1)})
            refused = Attempt(lab, "cyd", *EIGHT)
            assert refused.code != 0
            assert "yearly" in refused.message
            assert "8 GPU-hours reserved, 2 GPU-hours left" in refused.message
            assert Attempt(lab, "cyd", *EIGHT[:-1], "1:00:00").code == 0
            stranger = Attempt(
                lab, "eve", *EIGHT
            )  # of another account: Slurm refuses, and she learns nothing
            assert stranger.code != 0
            assert (stranger.message, "nvalid account" in stranger.stderr) == ("", True)
            odd = Attempt(lab, "cyd", *EIGHT[2:], f"--account=`touch {tmp_path}/b`;'\"$(touch {tmp_path}/c)")
            assert odd.code != 0
            assert [name for name in "abc" if (tmp_path / name).exists()] == []
            web.kill()
            alone = Attempt(lab, "cyd", *EIGHT, "--comment", "mine")
            assert (alone.code, field(lab, alone.job, "Comment")) == (0, f"mine {COMMENT}")
            assert "does not answer: the job is submitted all the same" in alone.message
            daemon.sends(signal.SIGSTOP)  # nothing on this host answers either
            hung = Attempt(lab, "cyd", *EIGHT)
            assert (hung.code, field(lab, hung.job, "Comment")) == (0, COMMENT)
            assert hung.seconds < 2 + 2 * Attempt(lab, "eve", "-A", "initech", "--test-only").seconds + 2
            daemon.write(on_failure="reject")
            rejected = Attempt(lab, "cyd", *EIGHT)
            assert rejected.code != 0
            assert "does not answer: the job is rejected, try again later" in rejected.message
            daemon.kill()
            daemon.write(on_failure="admit")
            assert Attempt(lab, "cyd", *EIGHT).code == 0
            assert set(Path("/tmp").glob("lua_*")) == files
    finally:
        lab.slurm("scancel", "-u", "cyd")


def test_quota_050_job_submit_refuses_by_a_small_file_whoever_goes_past_the_cli_filter(
    every_slurm: Lab, web: WebProcess
) -> None:
    lab, cluster = every_slurm, connected(every_slurm)
    globex = a_tenant("globex", plan=a_plan(charges=["gpu"]), accounts=[(cluster, "globex")])
    secret = a_key(an_operator(), None, "jobs:reserve", cluster=cluster).secret
    cpu = ("-A", "globex", "-p", "cpu", "--hold")
    try:
        with plugins(lab, JOB_SUBMIT), a_daemon(lab, web.url, secret, blocked={"every_seconds": 1}) as daemon:
            file = daemon.home / "blocked-accounts"
            until(file.exists)
            runs = Attempt(lab, "cyd", *EIGHT)
            assert (runs.code, runs.message) == (0, "")
            lab.is_running(runs.job)
            time.sleep(2)  # so that something is used of it when it is read
            pull(cluster)
            is_blocked(globex, QuotaAction.NO_GPU_JOBS, "yearly")
            until(lambda: "globex" in file.read_text())
            waits = Attempt(lab, "cyd", *EIGHT)
            assert waits.code == 0
            reason = waits.message.removesuffix(" Until then its GPU jobs wait.")
            assert re.fullmatch(
                r"ClusterTab: Account globex is blocked\. Budget yearly \(everything, each \w+\): "
                r"[\d.]+ GPU-hours of 0 GPU-hours used, 0 GPU-hours left\. "
                r"It resets on 20\d\d-\d\d-\d\d 00:00 UTC\. Ask an owner of Globex to raise it\.",
                reason,
            )
            stranger = Attempt(lab, "dot", *EIGHT, "-A", "globex")
            assert "This account is blocked." in stranger.message
            assert "yearly" not in stranger.message
            without = Attempt(lab, "cyd", *cpu)
            assert (without.code, without.message) == (0, "")
            daemon.kill()
            daemon.sections["blocked"]["gpu_jobs"] = "refuse"
            daemon.start()
            until(lambda: "gpu\tglobex" in file.read_text())
            refused = Attempt(lab, "cyd", *EIGHT)
            assert refused.code != 0
            assert re.sub(r": [\d.]+ ", ": ", refused.message) == re.sub(r": [\d.]+ ", ": ", reason)
            with pytest.raises(AssertionError, match=r"scontrol update"):
                lab.slurm("scontrol", "update", f"jobid={without.job}", "TresPerNode=gres/gpu:a100:1")
            assert Attempt(lab, "cyd", *cpu).code == 0
            is_blocked(globex, QuotaAction.NO_SUBMISSIONS, "daily")
            until(lambda: "all\tglobex" in file.read_text())
            assert "Budget daily (everything" in Attempt(lab, "cyd", *cpu).message
            assert Attempt(lab, "dot", "-A", "initech", "-p", "cpu").code == 0
            daemon.kill()
            for text in (
                file.read_text().replace("clustertab 2 ", "clustertab 2 1 "),
                "",
                "all\tglobex\tx\n",
            ):
                file.write_text(text)  # out of date, empty, cut off: what enforces is the block
                assert Attempt(lab, "cyd", *cpu).code == 0
    finally:
        lab.slurm("scancel", "-u", "cyd")


def is_blocked(tenant: Tenant, action: QuotaAction, name: str) -> None:
    """A budget of nothing is used up, and demands a block that nobody has carried out yet."""
    a_budget(tenant, 0, action, name=name)
    review.review_quotas(moment=datetime.now(UTC).replace(microsecond=0))


def test_quota_051_arrays_are_reserved_by_choice_and_what_is_held_once_it_waits_to_run(
    every_slurm: Lab, web: WebProcess
) -> None:
    lab, cluster = every_slurm, connected(every_slurm)
    a_budget(a_tenant("globex", plan=a_plan(charges=["gpu"]), accounts=[(cluster, "globex")]), 20)
    secret = a_key(an_operator(), None, "jobs:reserve", cluster=cluster).secret
    sections: dict[str, Any] = {"ask": {}, "queue": {"every_seconds": 1}}
    hour = ("-A", "globex", "-p", "h100", "--gres=gpu:h100:1", "-t", "60")
    try:
        with plugins(lab, CLI_FILTER), a_daemon(lab, web.url, secret, **sections) as daemon:
            whole = Attempt(lab, "cyd", *hour, "--array=0-999")
            assert whole.code != 0
            assert "yearly" in whole.message
            array = Attempt(lab, "cyd", *hour, "--array=0-999%8")
            assert "Reserved for 8 of 1000 tasks of the array at a time." in array.message
            first = {array.job: (1, 3600, 8)}
            until(lambda: reserved() == first)
            held = Attempt(lab, "cyd", *hour, "--hold")
            later = Attempt(lab, "cyd", *hour, f"--dependency=afterany:{held.job}")
            assert (
                held.message == later.message == "ClusterTab: This job is reserved for once it waits to run."
            )
            silent = Attempt(lab, "dot", "-A", "initech", "-p", "h100", "--gres=gpu:h100:1")
            lab.slurm("scancel", silent.job)  # alone: other stories read this user's jobs
            assert silent.message == ""  # nobody's account here
            until(lambda: "JobHeldUser" in field(lab, held.job, "JobState"))
            assert reserved() == first
            lab.slurm("scontrol", "release", held.job)
            until(lambda: reserved() == first | {held.job: (1, 3600, 1)})
            lab.slurm("scancel", held.job)
            until(lambda: later.job in reserved())
            assert reserved()[array.job] == (1, 3600, 8)
            daemon.kill()
            daemon.start()  # what it knew is in its file, and in ClusterTab
            lab.slurm("scontrol", "update", f"jobid={later.job}", "timelimit=30")
            until(lambda: reserved()[later.job] == (1, 1800, 1))
            assert len(reserved()) == Reservation.objects.filter(released_at=None).count() == 3
    finally:
        lab.slurm("scancel", "-u", "cyd")
