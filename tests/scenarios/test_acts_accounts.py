"""Op blocks an account by its limits and unblocks it: exactly what was there comes back, and nothing is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from django.db import connection

from clusters import enforcement_plan, job_control
from clusters.connectors.acts import ActRefusedError
from clusters.connectors.base import ConnectorError
from clusters.enforcement_plan import SchedulerPort, StalePlanError
from clusters.job_control import CarriedOut, carry_out
from clusters.models import AccountBlock, Act, ActKind
from portal.core.audit.models import AuditEntry
from tests.fakes.scheduler_port import a_port, a_world, connected
from tests.fakes.slurmrestd import StandIn
from tests.history import history

pytestmark = pytest.mark.django_db


@pytest.fixture(params=[40, 44], ids=lambda minor: f"v0.0.{minor}")
def slurm(request: pytest.FixtureRequest) -> Iterator[StandIn]:
    with StandIn(request.param, world=a_world()) as slurm:
        yield slurm


def carried(port: SchedulerPort, plan: enforcement_plan.Plan) -> CarriedOut:
    return carry_out(port=port, plan=plan, who="op", why="invoice unpaid")


def blocked(port: SchedulerPort, account: str = "vision", *, submits: bool = False) -> CarriedOut:
    return carried(port, enforcement_plan.plan_block(port=port, account=account, submits=submits))


def unblocked(port: SchedulerPort, account: str = "vision") -> CarriedOut:
    return carried(port, enforcement_plan.plan_unblock(port=port, account=account))


def test_a_plan_says_which_limit_would_change_and_does_nothing(slurm: StandIn) -> None:
    plan = enforcement_plan.plan_block(port=a_port(slurm), account="vision", submits=True)
    (step,) = plan.steps
    assert step.words == (
        "Block vision and the accounts below it: GrpSubmitJobs: none → 0; GrpTRES=gres/gpu: 8 → 0. "
        "Running jobs run on."
    )
    assert plan.notes == ("It takes effect where slurm.conf has AccountingStorageEnforce=limits.",)
    assert slurm.writes() == []


def test_where_gpus_are_shared_a_block_holds_jobs_with_shards_too(slurm: StandIn) -> None:
    cluster = connected(slurm)
    cluster.shares = {"a100": {"shard@gpu[1-2]": "1/4"}}
    cluster.save()
    with enforcement_plan.open_port(cluster=cluster, clock=lambda: slurm.now) as port:
        vision = slurm.world.limits("vision")
        assert blocked(port).good
        assert vision.tres["total"] == {"cpu": 512, "gres/gpu": 0, "gres/shard": 0}
        assert unblocked(port).good
        assert vision.tres["total"] == {"cpu": 512, "gres/gpu": 8}


def test_a_block_changes_its_own_limit_and_keeps_every_other(slurm: StandIn) -> None:
    vision = slurm.world.limits("vision")
    port = a_port(slurm)
    assert blocked(port).good
    assert vision.tres == {"total": {"cpu": 512, "gres/gpu": 0}, "group.minutes": {"mem": 2**40}}
    assert vision.jobs == {"per.count": 40, "active": 7}
    assert unblocked(port).good
    assert vision.tres == {"total": {"cpu": 512, "gres/gpu": 8}, "group.minutes": {"mem": 2**40}}
    assert vision.jobs == {"per.count": 40, "active": 7}
    assert len(slurm.writes()) == 2


def test_an_account_without_limits_has_none_again(slurm: StandIn) -> None:
    speech = slurm.world.limits("speech")
    port = a_port(slurm)
    assert blocked(port, "speech", submits=True).good
    assert (speech.tres, speech.jobs) == ({"total": {"gres/gpu": 0}}, {"per.submitted": 0})
    assert unblocked(port, "speech").good
    assert (speech.tres, speech.jobs) == ({}, {})  # and what the account above has was not made its own


def test_a_blocked_account_is_not_blocked_again(slurm: StandIn) -> None:
    port = a_port(slurm)
    blocked(port)
    plan = enforcement_plan.plan_block(port=port, account="vision")
    assert plan.steps == ()
    assert plan.notes == (f"vision is blocked already, by act {Act.objects.get().pk}.",)
    assert carried(port, plan).acts == ()
    assert len(slurm.writes()) == 1


def test_a_limit_that_is_zero_already_is_kept_so_without_being_sent(slurm: StandIn) -> None:
    slurm.world.limits("vision").tres["total"]["gres/gpu"] = 0
    (step,) = enforcement_plan.plan_block(port=a_port(slurm), account="vision").steps
    assert step.words == (
        "Keep vision blocked: somebody else has set its limits to 0 already, and that is what it has again "
        "afterwards. Nothing is sent to Slurm."
    )


def test_a_limit_that_op_changed_meanwhile_is_left_as_it_is(slurm: StandIn) -> None:
    vision = slurm.world.limits("vision")
    port = a_port(slurm)
    blocked(port, submits=True)
    vision.tres["total"]["gres/gpu"] = 2
    vision.tres["per.node"] = {"gres/gpu": 1}
    again = enforcement_plan.plan_block(port=port, account="vision")
    assert "GrpTRES=gres/gpu: 2 → 0" in again.steps[0].words
    plan = enforcement_plan.plan_unblock(port=port, account="vision")
    assert plan.notes == ("GrpTRES=gres/gpu is 2 and not our 0 any more: it is left as it is.",)
    assert carried(port, plan).good
    assert vision.tres["total"] == {"cpu": 512, "gres/gpu": 2}
    assert vision.tres["per.node"] == {"gres/gpu": 1}
    assert "per.submitted" not in vision.jobs


def test_where_nothing_of_ours_is_left_only_the_block_ends(slurm: StandIn) -> None:
    port = a_port(slurm)
    blocked(port)
    slurm.world.limits("vision").tres["total"]["gres/gpu"] = 2
    assert unblocked(port).good
    assert len(slurm.writes()) == 1
    assert enforcement_plan.plan_unblock(port=port, account="vision").notes == (
        "vision is not blocked from here.",
    )


def test_the_block_of_an_account_that_was_deleted_can_end(slurm: StandIn) -> None:
    port = a_port(slurm)
    blocked(port)
    slurm.world.associations = [row for row in slurm.world.associations if row.account != "vision"]
    plan = enforcement_plan.plan_unblock(port=port, account="vision")
    assert "has no account 'vision'" in plan.notes[0]
    assert carried(port, plan).good
    assert not AccountBlock.objects.filter(ended_at=None).exists()


def test_a_limit_that_changed_between_plan_and_deed_stops_it(slurm: StandIn) -> None:
    port = a_port(slurm)
    plan = enforcement_plan.plan_block(port=port, account="vision")
    slurm.world.limits("vision").tres["total"]["cpu"] = 256
    with pytest.raises(StalePlanError):
        carried(port, plan)
    assert slurm.writes() == []


def test_an_account_that_slurm_does_not_have(slurm: StandIn) -> None:
    with pytest.raises(ActRefusedError, match="has no account 'nobody': see `sacctmgr show account`"):
        enforcement_plan.plan_block(port=a_port(slurm), account="nobody")


def test_a_block_that_does_not_stick_is_an_error_and_no_block(slurm: StandIn) -> None:
    slurm.world.deaf = True
    port = a_port(slurm)
    (act,) = blocked(port).acts
    assert act.outcome == "failed"
    assert act.error == "Slurm took the limits of vision and has others: GrpTRES=gres/gpu: 0 → 8"
    assert not AccountBlock.objects.filter(ended_at=None).exists()
    slurm.world.deaf = False
    assert blocked(port).good


def test_eve_may_not_set_limits(slurm: StandIn) -> None:
    (act,) = blocked(a_port(slurm, "eve")).acts
    assert act.outcome == "failed"
    assert "`sacctmgr modify user eve set adminlevel=Operator`" in act.error
    assert slurm.world.limits("vision").tres["total"]["gres/gpu"] == 8


@pytest.mark.parametrize("minor", [38, 39])
def test_an_old_slurmrestd_is_never_sent_a_limit(minor: int) -> None:
    with StandIn(minor, world=a_world()) as old:
        with pytest.raises(ActRefusedError, match=r"before 23\.11 slurmrestd drops the change or crashes"):
            enforcement_plan.plan_block(port=a_port(old), account="vision")
        assert old.writes() == []


@pytest.mark.parametrize("reached", [True, False], ids=["after it took effect", "before it was sent"])
def test_a_process_killed_in_the_middle_leaves_an_act_that_looking_settles(
    slurm: StandIn, reached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = a_port(slurm)
    real = job_control._DOES

    def dies(port: SchedulerPort, act: Act) -> dict[str, int]:
        if reached:
            job_control._set(port, act)
        raise SystemExit(9)

    monkeypatch.setattr(job_control, "_DOES", {**real, ActKind.BLOCK: dies})
    with pytest.raises(SystemExit):
        blocked(port)
    monkeypatch.setattr(job_control, "_DOES", real)
    assert Act.objects.get().outcome == "intended"

    if reached:
        plan = enforcement_plan.plan_block(port=port, account="vision")
        assert plan.steps == ()
        assert unblocked(port).good
        first, _ = Act.objects.order_by("pk")
        assert (first.outcome, first.error) == ("done", "")
        assert slurm.world.limits("vision").tres["total"]["gres/gpu"] == 8
    else:
        plan = enforcement_plan.plan_block(port=port, account="vision")
        assert "has to be looked at first" in plan.notes[0]
        job_control.tidy(port=port)
        act = Act.objects.get()
        assert (act.outcome, act.error) == ("failed", "Looked at later, it had not been done.")
        assert blocked(port).good
        assert len(slurm.writes()) == 1


def test_an_answer_that_never_came_is_unknown_until_it_is_looked_at(slurm: StandIn) -> None:
    port = a_port(slurm)
    slurm.after = lambda request: slurm.down.add("slurmdbd") if request.startswith("POST") else None
    (act,) = blocked(port).acts
    assert act.outcome == "unknown"
    with pytest.raises(ConnectorError):
        enforcement_plan.plan_unblock(port=port, account="vision")
    slurm.down.clear()
    slurm.after = lambda request: None
    assert unblocked(port).good
    act.refresh_from_db()
    assert act.outcome == "done"
    assert slurm.world.limits("vision").tres["total"]["gres/gpu"] == 8


@pytest.mark.django_db(transaction=True)
def test_two_operators_who_block_one_account_at_once_block_it_once(slurm: StandIn) -> None:
    port = a_port(slurm)
    plan = enforcement_plan.plan_block(port=port, account="vision")
    results: list[str] = []
    start = threading.Barrier(4)

    def block() -> None:
        own = a_port(slurm)
        start.wait()
        try:
            results.append("done" if carried(own, plan).good else "failed")
        except StalePlanError:
            results.append("stale")
        finally:
            connection.close()

    threads = [threading.Thread(target=block) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == ["done", "stale", "stale", "stale"]
    assert len(slurm.writes()) == 1
    assert Act.objects.count() == AccountBlock.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_an_act_is_never_sent_from_inside_a_transaction(slurm: StandIn) -> None:
    from django.db import transaction

    port = a_port(slurm)
    plan = enforcement_plan.plan_block(port=port, account="vision")
    with pytest.raises(RuntimeError, match="durable"), transaction.atomic():
        carried(port, plan)
    assert slurm.writes() == []


def test_the_history_has_who_blocked_why_and_how_it_ended(slurm: StandIn) -> None:
    port = a_port(slurm)
    blocked(port)
    entries = AuditEntry.objects.of(Act.objects.get())
    assert [(entry.operation, entry.who, entry.why) for entry in entries] == [
        ("insert", "op", "invoice unpaid"),
        ("update", "op", "invoice unpaid"),
    ]
    assert history(Act, "outcome") == [("insert", "intended"), ("update", "done")]


@pytest.mark.parametrize("change", ["DELETE FROM clusters_act", "UPDATE clusters_act SET outcome = 'failed'"])
def test_what_was_done_cannot_be_rewritten(slurm: StandIn, change: str) -> None:
    from django.db import DatabaseError

    blocked(a_port(slurm))
    with pytest.raises(DatabaseError, match=r"kept for ever|told once"), connection.cursor() as cursor:
        cursor.execute(change)
