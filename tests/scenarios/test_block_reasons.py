"""Op, dunning and a quota block one account, each by itself: it is blocked while one of them does, then as before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clusters import blocks, enforcement_plan, job_control
from clusters.connectors.slurm.acts import STARTS
from clusters.enforcement_plan import LimitError, SchedulerPort, StalePlanError
from clusters.job_control import CarriedOut, carry_out
from clusters.models import AccountBlock, Act, ActKind, BlockReason
from portal.core.audit.models import AuditEntry
from tests import orders
from tests.fakes.scheduler_port import a_port, a_world
from tests.fakes.slurmrestd import StandIn

pytestmark = pytest.mark.django_db

BEFORE = ({"cpu": 512, "gres/gpu": 8}, {"per.count": 40, "active": 7})


@pytest.fixture
def slurm() -> Iterator[StandIn]:
    with StandIn(44, world=a_world()) as slurm:
        yield slurm


@pytest.fixture
def port(slurm: StandIn) -> SchedulerPort:
    return a_port(slurm)


def blocked(port: SchedulerPort, source: str = blocks.OPERATOR, *, submits: bool = False) -> CarriedOut:
    plan = enforcement_plan.plan_block(port=port, account="vision", source=source, submits=submits)
    return carry_out(port=port, plan=plan, who=source, why=f"{source} says so")


def unblocked(port: SchedulerPort, source: str = blocks.OPERATOR) -> CarriedOut:
    plan = enforcement_plan.plan_unblock(port=port, account="vision", source=source)
    return carry_out(port=port, plan=plan, who=source)


def gpus(slurm: StandIn) -> int | None:
    return slurm.world.limits("vision").tres["total"].get("gres/gpu")


def submits(slurm: StandIn) -> int | None:
    return slurm.world.limits("vision").jobs.get("per.submitted")


def sources() -> list[str]:
    return list(BlockReason.objects.filter(ended_at=None).order_by("pk").values_list("source", flat=True))


@pytest.mark.larger
def test_in_every_order_of_three_reasons_the_block_goes_with_the_last(
    slurm: StandIn, port: SchedulerPort
) -> None:
    vision = slurm.world.limits("vision")

    def look(stands: set[str]) -> None:
        assert gpus(slurm) == (0 if stands else 8)
        assert submits(slurm) == (0 if orders.refuses(stands) else None)
        assert set(sources()) == stands
        assert AccountBlock.objects.filter(ended_at=None).count() == bool(stands)

    for order in orders.orders():
        orders.play(order, account="vision", opens=lambda: port, look=look)
        assert (vision.tres["total"], vision.jobs) == BEFORE


def test_a_second_reason_sends_nothing_and_says_so(slurm: StandIn, port: SchedulerPort) -> None:
    blocked(port, "dunning")
    sent = len(slurm.writes())
    plan = enforcement_plan.plan_block(port=port, account="vision")
    (step,) = plan.steps
    assert step.words == (
        "Keep vision blocked: it is blocked already for dunning (dunning says so), and stays so until this is taken "
        "back too. Nothing is sent to Slurm."
    )
    assert carry_out(port=port, plan=plan, who="op").good
    assert (sources(), len(slurm.writes())) == (["dunning", "operator"], sent)
    assert (
        enforcement_plan.plan_block(port=port, account="vision")
        .notes[0]
        .startswith("vision is blocked already, by act")
    )


def test_what_op_takes_back_is_op_s_own(slurm: StandIn, port: SchedulerPort) -> None:
    blocked(port, "dunning")
    plan = enforcement_plan.plan_unblock(port=port, account="vision")
    assert (plan.steps, plan.notes) == (
        (), ("vision is not blocked by operator: it stays blocked for dunning (dunning says so).",)
    )  # fmt: skip
    blocked(port)
    plan = enforcement_plan.plan_unblock(port=port, account="vision")
    assert [step.words for step in plan.steps] == ["vision stays blocked for dunning (dunning says so)."]
    assert carry_out(port=port, plan=plan, who="op").good
    assert (gpus(slurm), sources()) == (0, ["dunning"])
    assert unblocked(port, "dunning").good
    assert gpus(slurm) == 8


def test_refusing_new_jobs_tightens_an_account_that_is_blocked(slurm: StandIn, port: SchedulerPort) -> None:
    blocked(port)
    plan = enforcement_plan.plan_block(port=port, account="vision", submits=True)
    assert [step.words for step in plan.steps] == [
        "Block vision and the accounts below it: GrpSubmitJobs: none → 0. Running jobs run on."
    ]
    assert blocked(port, submits=True).good
    assert (gpus(slurm), submits(slurm)) == (0, 0)
    assert blocked(port, submits=True).acts == blocked(port).acts == ()
    assert unblocked(port).good
    assert (slurm.world.limits("vision").tres["total"], slurm.world.limits("vision").jobs) == BEFORE


def test_a_reason_that_does_not_take_effect_leaves_the_others_as_they_were(
    slurm: StandIn, port: SchedulerPort
) -> None:
    blocked(port)
    slurm.world.deaf = True
    assert not blocked(port, "quota", submits=True).good
    assert sources() == ["operator"]
    assert AccountBlock.objects.get().limits == {STARTS: [8, 0]}
    assert not unblocked(port).good
    assert sources() == ["operator"]
    slurm.world.deaf = False
    assert unblocked(port).good
    assert (gpus(slurm), submits(slurm)) == (8, None)


def test_what_somebody_else_set_to_0_before_is_0_afterwards(slurm: StandIn, port: SchedulerPort) -> None:
    slurm.world.limits("vision").tres["total"]["gres/gpu"] = 0
    assert blocked(port, "dunning").good
    assert unblocked(port, "dunning").good
    assert (gpus(slurm), slurm.writes()) == (0, [])


def test_a_new_reason_closes_what_somebody_had_opened_and_gives_that_back(
    slurm: StandIn, port: SchedulerPort
) -> None:
    blocked(port)
    slurm.world.limits("vision").tres["total"]["gres/gpu"] = 2
    assert blocked(port, "dunning").good
    assert gpus(slurm) == 0
    unblocked(port)
    assert gpus(slurm) == 0
    unblocked(port, "dunning")
    assert gpus(slurm) == 2


@pytest.mark.parametrize("source", [blocks.OPERATOR, "dunning"])
def test_a_reason_that_stands_closes_again_what_somebody_had_opened(
    slurm: StandIn, port: SchedulerPort, source: str
) -> None:
    blocked(port, source)
    slurm.world.limits("vision").tres["total"]["gres/gpu"] = 4
    assert blocked(port, source).good
    assert (gpus(slurm), sources()) == (0, [source])
    assert unblocked(port, source).good
    assert (gpus(slurm), sources()) == (4, [])


def test_a_reason_that_stands_still_does_where_it_could_not_close_again(
    slurm: StandIn, port: SchedulerPort
) -> None:
    blocked(port)
    slurm.world.limits("vision").tres["total"]["gres/gpu"] = 4
    slurm.world.deaf = True
    assert not blocked(port).good
    assert (gpus(slurm), sources()) == (4, ["operator"])
    slurm.world.deaf = False
    assert blocked(port).good
    assert unblocked(port).good
    assert (gpus(slurm), sources()) == (4, [])


@pytest.mark.parametrize("reached", [True, False], ids=["after it took effect", "before it was sent"])
@pytest.mark.parametrize("kind", [ActKind.BLOCK, ActKind.UNBLOCK])
def test_killed_between_two_reasons_it_is_settled_by_looking(
    slurm: StandIn, port: SchedulerPort, kind: ActKind, reached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked(port)
    if kind == ActKind.UNBLOCK:
        blocked(port, "quota", submits=True)

    def dies(port: SchedulerPort, act: Act) -> dict[str, int]:
        if reached:
            job_control._set(port, act)
        raise SystemExit(9)

    with monkeypatch.context() as patched:
        patched.setattr(job_control, "_DOES", {**job_control._DOES, kind: dies})
        with pytest.raises(SystemExit):
            blocked(port, "quota", submits=True) if kind == ActKind.BLOCK else unblocked(port, "quota")
    assert not blocks.is_in_force(port.cluster, "vision", source="quota") or kind == ActKind.UNBLOCK
    job_control.tidy(port=port)
    closed = reached == (kind == ActKind.BLOCK)
    assert sources() == (["operator", "quota"] if closed else ["operator"])
    assert (gpus(slurm), submits(slurm)) == (0, 0 if closed else None)
    for source in sources():
        unblocked(port, source)
    assert (slurm.world.limits("vision").tres["total"], slurm.world.limits("vision").jobs) == BEFORE


def test_a_plan_is_stale_once_the_other_reason_has_gone(slurm: StandIn, port: SchedulerPort) -> None:
    blocked(port)
    blocked(port, "dunning")
    plan = enforcement_plan.plan_unblock(port=port, account="vision")  # it would stay blocked
    unblocked(port, "dunning")
    with pytest.raises(StalePlanError):
        carry_out(port=port, plan=plan, who="op")
    assert gpus(slurm) == 0


def test_an_act_that_cannot_be_settled_is_no_block_in_force(slurm: StandIn, port: SchedulerPort) -> None:
    slurm.after = lambda request: slurm.down.add("slurmdbd") if request.startswith("POST") else None
    assert blocked(port, "dunning").acts[0].outcome == "unknown"
    assert not blocks.is_in_force(port.cluster, "vision", source="dunning")
    slurm.down.clear()
    slurm.after = lambda request: None
    assert "has to be looked at first" in enforcement_plan.plan_block(port=port, account="vision").notes[0]
    with pytest.raises(LimitError):
        enforcement_plan.plan_block(port=port, account=" ")
    job_control.tidy(port=port)
    assert blocks.is_in_force(port.cluster, "vision", source="dunning")


def test_the_history_has_each_reason_that_came_and_went(slurm: StandIn, port: SchedulerPort) -> None:
    blocked(port)
    unblocked(port)
    entries = AuditEntry.objects.of(BlockReason.objects.get())
    assert [(entry.operation, entry.who) for entry in entries] == [
        ("insert", "operator"), ("update", "operator"), ("update", "operator"),
    ]  # fmt: skip
