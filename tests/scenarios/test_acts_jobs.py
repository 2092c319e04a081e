"""Op holds, releases and cancels jobs: what was planned, what was done, what Slurm really has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clusters import enforcement_plan, job_control
from clusters.connectors.acts import ActRefusedError
from clusters.connectors.base import ConnectorError
from clusters.enforcement_plan import LimitError, SchedulerPort, StalePlanError
from clusters.job_control import CarriedOut, carry_out
from clusters.models import Act, ActOutcome
from tests.fakes.scheduler_port import a_port, a_world
from tests.fakes.slurm_world import Job
from tests.fakes.slurmrestd import StandIn
from tests.schedulers import plan_cancel, plan_hold, plan_release

pytestmark = pytest.mark.django_db


@pytest.fixture(params=[38, 40, 44], ids=lambda minor: f"v0.0.{minor}")
def slurm(request: pytest.FixtureRequest) -> Iterator[StandIn]:
    """Ben waits twice and runs once in vision, and once in speech; Ann waits in vision."""
    with StandIn(request.param, world=a_world()) as slurm:
        slurm.world.add(
            Job(11),
            Job(12, array="0-3"),
            Job(13, state="RUNNING", reason="None", started=1_772_000_100),
            Job(14, user="ann"),
            Job(15, account="speech"),
            Job(16, state="COMPLETED", reason="None", started=1_772_000_100, ended=1_772_000_200),
        )
        yield slurm


def carried(port: SchedulerPort, plan: enforcement_plan.Plan, why: str = "budget used up") -> CarriedOut:
    return carry_out(port=port, plan=plan, who="op", why=why)


def reasons(slurm: StandIn) -> dict[int, str]:
    return {job.id: job.reason for job in slurm.world.jobs.values()}


def test_a_plan_says_in_words_what_would_be_held_and_does_nothing(slurm: StandIn) -> None:
    plan = plan_hold(port=a_port(slurm), account="vision")
    assert [step.words for step in plan.steps] == [
        "Hold job 11 of ben in vision.",
        "Hold job 12 (tasks 0-3) of ben in vision.",
        "Hold job 14 of ann in vision.",
    ]
    assert slurm.writes() == []
    assert not Act.objects.exists()


def test_waiting_jobs_of_an_account_are_held_and_nothing_else_is_touched(slurm: StandIn) -> None:
    port = a_port(slurm)
    before = reasons(slurm)
    done = carried(port, plan_hold(port=port, account="vision"))
    assert done.good
    assert reasons(slurm) == {**before, 11: "JobHeldAdmin", 12: "JobHeldAdmin", 14: "JobHeldAdmin"}
    assert len(slurm.writes()) == 3
    act = Act.objects.get(target="job 11@1772000000")
    assert (act.who, act.why, act.outcome, act.before) == ("op", "budget used up", "done", {"held": False})
    assert act.after == {"11@1772000000": ["PENDING", "JobHeldAdmin"]}
    assert {act.errand for act in done.acts} == {act.errand}


def test_only_one_users_jobs_are_held(slurm: StandIn) -> None:
    port = a_port(slurm)
    carried(port, plan_hold(port=port, account="vision", user="ann"))
    assert [number for number, reason in reasons(slurm).items() if reason == "JobHeldAdmin"] == [14]


def test_what_is_held_already_is_not_held_again(slurm: StandIn) -> None:
    port = a_port(slurm)
    carried(port, plan_hold(port=port, account="vision"))
    again = plan_hold(port=port, account="vision")
    assert again.steps == ()
    assert again.notes == ("No job of vision waits that could be held.", "Held already: 3.")
    assert carried(port, again).acts == ()
    assert len(slurm.writes()) == 3


def test_release_lets_go_what_was_held_here_and_no_hold_of_anybody_else(slurm: StandIn) -> None:
    slurm.world.jobs[14].reason = "JobHeldUser"  # Ann's own
    slurm.world.jobs[11].reason = "JobHeldAdmin"  # another operator's
    port = a_port(slurm)
    carried(port, plan_hold(port=port, account="vision"))
    plan = plan_release(port=port, account="vision")
    assert [step.target for step in plan.steps] == ["job 12@1772000000"]
    assert plan.notes == ("Held by others and left so: 2.",)
    assert carried(port, plan).good
    assert [reasons(slurm)[number] for number in (11, 12, 14)] == ["JobHeldAdmin", "None", "JobHeldUser"]
    assert plan_release(port=port, account="vision").steps == ()


def test_a_job_that_starts_before_it_is_held_is_let_be(slurm: StandIn) -> None:
    port = a_port(slurm)
    plan = plan_hold(port=port, account="speech")

    def starts(request: str) -> None:
        if request.startswith("POST"):
            slurm.world.jobs[15].state = "RUNNING"

    slurm.before = starts
    (act,) = carried(port, plan).acts
    assert (act.outcome, act.error) == ("failed", "Job 15 started or ended before it could be held.")
    assert reasons(slurm)[15] == "None"  # held while running it would never come back from a requeue


@pytest.mark.parametrize(("job", "words"), [(11, "pending"), (13, "running")])
def test_one_job_is_cancelled(slurm: StandIn, job: int, words: str) -> None:
    port = a_port(slurm)
    plan = plan_cancel(port=port, job=job)
    assert [step.words for step in plan.steps] == [
        f"Cancel job {job} of ben in vision (train), which is {words}."
    ]
    assert carried(port, plan).good
    assert slurm.world.jobs[job].state == "CANCELLED"
    assert plan_cancel(port=port, job=job).notes == (f"Job {job} has ended already.",)


def test_a_job_that_ended_or_never_was_is_not_cancelled(slurm: StandIn) -> None:
    port = a_port(slurm)
    assert plan_cancel(port=port, job=16).steps == ()
    with pytest.raises(LimitError, match="gpu1 has no job 99 that waits or runs"):
        plan_cancel(port=port, job=99)


def test_a_waiting_part_of_a_heterogeneous_job_is_not_cancelled_alone(slurm: StandIn) -> None:
    slurm.world.jobs[11].component = True
    port = a_port(slurm)
    (act,) = carried(port, plan_cancel(port=port, job=11)).acts
    assert act.outcome == "failed"
    assert "2108" in act.error


def test_a_job_that_started_since_it_was_looked_at_is_cancelled_all_the_same(slurm: StandIn) -> None:
    port = a_port(slurm)
    plan = plan_cancel(port=port, job=11)
    slurm.world.jobs[11].state = "RUNNING"
    (act,) = carried(port, plan).acts
    assert (act.outcome, act.before) == ("done", {"11@1772000000": ["RUNNING"]})
    assert slurm.world.jobs[11].state == "CANCELLED"


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_job_that_ended_since_it_was_looked_at_is_left_out(slurm: StandIn, *, forgotten: bool) -> None:
    port = a_port(slurm)
    plan = plan_cancel(port=port, job=13)
    slurm.world.jobs[13].state = "COMPLETED"
    if forgotten:
        del slurm.world.jobs[13]
    done = carried(port, plan)
    assert (done.acts, done.dropped, done.good) == ((), plan.steps, True)
    assert slurm.writes() == []


def test_on_a_busy_account_jobs_that_start_meanwhile_are_left_out_and_the_rest_is_held(
    slurm: StandIn,
) -> None:
    port = a_port(slurm)
    plan = plan_hold(port=port, account="vision")
    slurm.world.jobs[11].state = "RUNNING"
    slurm.world.jobs[12].array = "2-3"  # two of its tasks have started
    done = carried(port, plan)
    assert [step.target for step in done.dropped] == ["job 11@1772000000"]
    assert [act.target for act in done.acts] == ["job 12@1772000000", "job 14@1772000000"]
    assert done.good
    assert [reasons(slurm)[number] for number in (11, 12, 14)] == ["Priority", "JobHeldAdmin", "JobHeldAdmin"]

    release = plan_release(port=port, account="vision")
    slurm.world.jobs[14].state = "COMPLETED"
    done = carried(port, release)
    assert [step.target for step in done.dropped] == ["job 14@1772000000"]
    assert reasons(slurm)[12] == "None"


@pytest.mark.parametrize("number", [11, 12])
def test_a_plan_that_was_bound_is_carried_out_exactly_or_not_at_all(slurm: StandIn, number: int) -> None:
    port = a_port(slurm)
    hold, cancel = plan_hold(port=port, account="vision"), plan_cancel(port=port, job=number)
    slurm.world.jobs[number].state = "RUNNING"
    for plan in (hold, cancel):
        with pytest.raises(StalePlanError, match="look at the plan again"):
            carry_out(port=port, plan=plan, who="op", exactly=True)
    assert slurm.writes() == []
    assert not Act.objects.exists()


def test_a_job_that_came_after_the_plan_is_not_held_by_it(slurm: StandIn) -> None:
    port = a_port(slurm)
    plan = plan_hold(port=port, account="vision")
    slurm.world.add(Job(20))
    assert carried(port, plan).good
    assert reasons(slurm)[20] == "Priority"
    assert [step.target for step in plan_hold(port=port, account="vision").steps] == ["job 20@1772000000"]


def test_a_job_whose_number_was_given_anew_is_another_job(slurm: StandIn) -> None:
    port = a_port(slurm)
    plan = plan_cancel(port=port, job=11)
    slurm.world.jobs[11].submitted += 900
    with pytest.raises(StalePlanError):
        carried(port, plan)


@pytest.mark.parametrize("account", ["", "  "])
def test_no_account_does_not_mean_all_of_them(slurm: StandIn, account: str) -> None:
    port = a_port(slurm)
    for planned in (plan_hold, plan_release, enforcement_plan.plan_block, enforcement_plan.plan_unblock):
        with pytest.raises(LimitError, match="An account must be named"):
            planned(port=port, account=account)
    with pytest.raises(LimitError):
        plan_hold(port=port, account=account, user="ben")
    assert not [request for request in slurm.requests if "/jobs" in request or "associations" in request]


def test_eve_may_not_touch_bens_jobs(slurm: StandIn) -> None:
    port = a_port(slurm, "eve")
    (act,) = carried(port, plan_cancel(port=port, job=13)).acts
    assert act.outcome == "failed"
    assert "2002" in act.error or "AdminLevel" in act.error or "adminlevel" in act.error
    acts = carried(port, plan_hold(port=port, account="speech")).acts
    assert [act.outcome for act in acts] == ["failed"]
    assert slurm.world.jobs[13].state == "RUNNING"
    assert reasons(slurm)[15] == "Priority"


def test_a_write_that_is_answered_and_not_done_is_told(slurm: StandIn) -> None:
    slurm.world.deaf = True
    port = a_port(slurm)
    (act,) = carried(port, plan_cancel(port=port, job=13)).acts
    assert act.outcome == "failed"
    assert "Job 13 was cancelled and goes on all the same" in act.error
    (act,) = carried(port, plan_hold(port=port, account="speech")).acts
    assert act.outcome == "failed"
    assert "Job 15 was held and is not" in act.error


def test_where_slurmctld_stops_answering_the_rest_is_not_begun(slurm: StandIn) -> None:
    port = a_port(slurm)
    plan = plan_hold(port=port, account="vision")
    slurm.after = lambda request: slurm.down.add("slurmctld") if request.startswith("POST") else None
    done = carried(port, plan)
    assert ([act.outcome for act in done.acts], done.left, done.good) == (["unknown"], 2, False)
    with pytest.raises(ConnectorError):
        carried(port, plan)

    slurm.down.clear()
    slurm.after = lambda request: None
    rest = plan_hold(port=port, account="vision")
    assert len(rest.steps) == 2
    assert carried(port, rest).good
    assert list(Act.objects.order_by("pk").values_list("outcome", flat=True)) == ["done"] * 3
    assert len(slurm.writes()) == 3  # nothing was sent twice


def test_a_process_that_dies_while_it_acts_is_settled_by_looking(
    slurm: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = a_port(slurm)
    real = job_control._end

    def dies(*_: object, **__: object) -> Act:
        raise KeyboardInterrupt

    monkeypatch.setattr(job_control, "_end", dies)
    with pytest.raises(KeyboardInterrupt):
        carried(port, plan_cancel(port=port, job=13))
    monkeypatch.setattr(job_control, "_end", real)
    assert Act.objects.get().outcome == ActOutcome.INTENDED
    with job_control.alone(port.cluster):
        job_control.settle(port=port)
    act = Act.objects.get()
    assert (act.outcome, act.who) == ("done", "op")
    assert len(slurm.writes()) == 1


def test_v0_0_39_cannot_hold_and_says_why() -> None:
    with StandIn(39, world=a_world()) as slurm:
        slurm.world.add(Job(11))
        with pytest.raises(ActRefusedError, match="cannot hold or release jobs: use `scontrol hold`"):
            plan_hold(port=a_port(slurm), account="vision")
        port = a_port(slurm)
        assert carried(port, plan_cancel(port=port, job=11)).good
