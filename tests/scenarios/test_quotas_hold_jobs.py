"""A budget that holds what waits: again and again, of one user alone, and only what it has held is let go."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

import pytest

from billing.admission.blocked_accounts import list_blocked_accounts
from billing.models import Quota, QuotaAction, QuotaBlock
from billing.quotas.terms import QuotaError
from clusters import enforcement_plan, job_control
from clusters.connectors.slurm.acts import SlurmActs
from clusters.enforcement_plan import Request
from clusters.models import AccountBlock, Act, ActKind, Connection
from portal.core.events.models import Event
from portal.core.tenants.models import Ownership
from tests.builders import a_person, a_plan, a_tenant, an_operator, own
from tests.fakes.scheduler_port import a_world
from tests.fakes.slurm_world import Association, Job
from tests.fakes.slurmrestd import StandIn
from tests.quota_stories import a_quota, spend
from tests.scenarios.test_quotas_end_jobs import EndingLab, lab
from tests.schedulers import plan_hold, plan_release
from tests.web.house import page
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["lab"]

HOLDS = {"action": QuotaAction.HOLD_JOBS}


def test_quota_031_waiting_jobs_are_held_again_and_again_and_only_these_released(lab: EndingLab) -> None:
    a_quota(lab.tenant, **HOLDS)
    world = lab.slurm.world
    world.add(Job(1), Job(2, reason="JobHeldUser"), Job(3, account="speech"), Job(4, state="RUNNING"))
    spend(lab.cluster, "1000.00")
    lab.goes_by()
    assert [world.jobs[number].reason for number in (1, 2, 3, 4)] == [
        "JobHeldAdmin", "JobHeldUser", "Priority", "Priority",
    ]  # fmt: skip
    assert (lab.gpus, lab.states) == (8, ["blocked"])
    world.add(Job(5))
    lab.goes_by(61)
    assert (world.jobs[5].reason, lab.told, Event.objects.filter(type="quota.blocked").count()) == (
        "JobHeldAdmin", [], 1,
    )  # fmt: skip
    lab.raise_to("1500")
    lab.goes_by()
    assert [world.jobs[number].reason for number in (1, 2, 5)] == ["None", "JobHeldUser", "None"]
    assert lab.states == ["lifted"]


def test_quota_040_a_slurm_that_takes_no_limits_has_its_gpu_jobs_held_on_each_pass_and_op_is_told(
    settings: Any,
) -> None:
    settings.CLUSTERTAB_SENDS_MAIL = True
    with StandIn(38, world=a_world()) as slurm:
        lab = EndingLab(slurm)
        a_quota(lab.tenant, action=QuotaAction.NO_GPU_JOBS)
        world = slurm.world
        world.add(Job(1), Job(2, gpus=0), Job(3, reason="JobHeldUser"), Job(4, account="speech"))
        spend(lab.cluster, "1000.00")
        assert lab.goes_by().troubles == []
        assert [world.jobs[number].reason for number in (1, 2, 3, 4)] == [
            "JobHeldAdmin", "Priority", "JobHeldUser", "Priority",
        ]  # fmt: skip
        row = QuotaBlock.objects.get()
        assert (row.state, row.holds_instead, lab.gpus) == ("blocked", True, 8)
        listed = [(one.account, one.refuses) for one in list_blocked_accounts(lab.cluster, moment=lab.now)]
        assert listed == [("vision", False)]  # a plugin at submission can do what the scheduler cannot
        assert "cannot have its limits set over REST" in row.error
        assert "one that starts in between runs" in words(page(an_operator(), "/operator/budgets/"))
        ann = a_person(tenant=lab.tenant)
        text = words(page(ann, "/t/vision/budgets/"))
        assert "Waiting jobs are held: vision" in text
        assert "over REST" not in text
        world.add(Job(5))
        lab.goes_by(61)
        assert (world.jobs[5].reason, Event.objects.filter(type="quota.blocked").count()) == (
            "JobHeldAdmin",
            1,
        )
        lab.raise_to("1500")
        lab.goes_by()
        assert [world.jobs[number].reason for number in (1, 3, 5)] == ["None", "JobHeldUser", "None"]
        assert (lab.states, QuotaBlock.objects.get().error) == (["lifted"], "")
        Connection.objects.create(cluster=lab.cluster, base_url=slurm.url, api_version="v0.0.38")
        form = {"name": "new", "amount": "5", "action": "no-gpu-jobs", "act": "preview"}
        form |= {"measure": "money", "every": "month"}
        text = words(page(ann, f"/t/vision/budgets/?{urlencode(form)}"))
        assert "On gpu1 accounts cannot be blocked: jobs that wait are held every minute instead." in text


def test_quota_042_above_somebody_elses_account_its_own_waiting_jobs_are_held_until_it_can_be_blocked(
    lab: EndingLab,
) -> None:
    other = a_tenant("speech", plan=a_plan("other"), accounts=[(lab.cluster, "speech")])
    own(lab.tenant, lab.cluster, "acme")
    a_quota(lab.tenant, account="acme", action=QuotaAction.NO_SUBMISSIONS)
    world = lab.slurm.world
    world.add(Job(1, account="acme"), Job(2, account="speech"), Job(3, account="acme", gpus=0))
    spend(lab.cluster, "1000.00", account="acme")
    lab.goes_by()
    assert [world.jobs[number].reason for number in (1, 2, 3)] == ["JobHeldAdmin", "Priority", "JobHeldAdmin"]
    assert world.limits("acme").tres.get("total") is None
    row = QuotaBlock.objects.get()
    assert (row.state, row.holds_instead) == ("blocked", True)
    assert "speech" in row.error
    assert [(one.account, one.refuses) for one in list_blocked_accounts(lab.cluster, moment=lab.now)] == [
        ("acme", True)
    ]

    Ownership.objects.filter(tenant=other).update(until=lab.now)  # then nobody else lies below it
    lab.goes_by(61)
    row.refresh_from_db()
    assert (row.state, row.holds_instead, row.error) == ("blocked", False, "")
    assert world.limits("acme").tres["total"]["gres/gpu"] == 0
    lab.raise_to("1500")
    lab.goes_by()
    assert [world.jobs[number].reason for number in (1, 3)] == ["None", "None"]
    assert world.limits("acme").tres.get("total") is None


def test_quota_040_a_job_that_starts_before_its_hold_keeps_no_other_from_being_held(
    lab: EndingLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_quota(lab.tenant, **HOLDS)
    world = lab.slurm.world
    world.add(Job(1), Job(2))
    hold = SlurmActs.hold

    def held(acts: SlurmActs, number: int) -> Any:
        world.jobs[1].state = "RUNNING"
        return hold(acts, number)

    monkeypatch.setattr(SlurmActs, "hold", held)
    spend(lab.cluster, "1000.00")
    done = lab.goes_by()
    assert (lab.states, done.troubles, world.jobs[2].reason) == (["blocked"], [], "JobHeldAdmin")
    world.add(Job(3))
    lab.goes_by(61)
    assert world.jobs[3].reason == "JobHeldAdmin"


def test_quota_038_a_job_that_op_lets_go_by_hand_is_not_held_again(lab: EndingLab) -> None:
    a_quota(lab.tenant, **HOLDS)
    world = lab.slurm.world
    world.add(Job(1), Job(2))
    spend(lab.cluster, "1000.00")
    lab.goes_by()
    world.jobs[1].reason = "Priority"
    lab.goes_by(61)
    assert [world.jobs[number].reason for number in (1, 2)] == ["Priority", "JobHeldAdmin"]
    lab.raise_to("1500")
    lab.goes_by()
    spend(lab.cluster, "500.00", day="2026-03-03")
    lab.goes_by()
    assert [world.jobs[number].reason for number in (1, 2)] == ["Priority", "JobHeldAdmin"]


def test_quota_036_a_hold_of_ops_on_a_job_that_a_budget_holds_outlasts_the_budgets(lab: EndingLab) -> None:
    a_quota(lab.tenant, **HOLDS)
    world = lab.slurm.world
    world.add(Job(1), Job(2, user="eve"))
    spend(lab.cluster, "1000.00")
    lab.goes_by()
    writes = len(lab.slurm.writes())
    with lab.opens(lab.cluster) as port:
        plan = plan_hold(port=port, account="vision", user="ben")
        assert [step.words for step in plan.steps] == [
            "Keep job 1 of ben in vision held, which a budget holds now. Nothing is sent to Slurm."
        ]
        assert job_control.carry_out(port=port, plan=plan, who="op", why="licenses").good
        assert plan_hold(port=port, account="vision", user="ben").steps == ()
    assert len(lab.slurm.writes()) == writes
    lab.raise_to("1500")
    lab.goes_by()
    assert [world.jobs[number].reason for number in (1, 2)] == ["JobHeldAdmin", "None"]
    with lab.opens(lab.cluster) as port:
        job_control.carry_out(port=port, plan=plan_release(port=port, account="vision"), who="op")
    assert world.jobs[1].reason == "None"


def test_quota_041_a_budget_of_a_user_holds_the_jobs_of_that_user_alone(lab: EndingLab) -> None:
    a_quota(lab.tenant, "of-ben", user="ben", amount=Decimal(100), **HOLDS)
    a_quota(lab.tenant, **HOLDS)
    world = lab.slurm.world
    world.add(Job(1), Job(2, user="eve"))
    spend(lab.cluster, "100.00", user="ben")
    lab.goes_by()
    assert [world.jobs[number].reason for number in (1, 2)] == ["JobHeldAdmin", "Priority"]
    spend(lab.cluster, "900.00", user="eve")
    lab.goes_by()
    assert world.jobs[2].reason == "JobHeldAdmin"
    lab.raise_to("500", "of-ben")
    lab.goes_by()
    assert world.jobs[1].reason == "JobHeldAdmin"  # the other budget has it held
    lab.raise_to("5000")
    lab.goes_by()
    assert [world.jobs[number].reason for number in (1, 2)] == ["None", "None"]


def test_quota_041_a_block_stops_whole_accounts_so_it_is_of_no_user(lab: EndingLab) -> None:
    with pytest.raises(QuotaError, match="one of a user can notify, hold or end jobs"):
        a_quota(lab.tenant, user="ben", action=QuotaAction.NO_GPU_JOBS)
    with pytest.raises(QuotaError, match="can only notify"):
        a_quota(lab.tenant, gpu_model="a100", **HOLDS)


def test_quota_039_jobs_that_were_never_held_need_no_scheduler_to_be_let_go(lab: EndingLab) -> None:
    a_quota(lab.tenant, **HOLDS)
    spend(lab.cluster, "1000.00")
    lab.is_away = True
    lab.goes_by()
    lab.raise_to("1500")
    lab.goes_by(3600)
    assert (lab.states, Act.objects.count()) == (["lifted"], 0)
    assert QuotaBlock.objects.get().holds


def of_ben(lab: EndingLab) -> Association:
    return next(row for row in lab.slurm.world.associations if row.user == "ben")


def test_quota_041_the_limit_goes_on_the_association_of_the_user_and_back_with_its_last_reason(
    lab: EndingLab,
) -> None:
    ben = of_ben(lab)
    ben.tres, ben.jobs = {"total": {"cpu": 7, "gres/gpu": 3}}, {"per.submitted": 55}
    before = [(row.id, dict(row.tres), dict(row.jobs)) for row in lab.slurm.world.associations]
    for name in ("of-ben", "also-of-ben"):
        a_quota(lab.tenant, name, user="ben", amount=Decimal(100), **HOLDS)
    lab.slurm.world.add(Job(1), Job(2, user="eve"))
    spend(lab.cluster, "100.00", user="ben")
    assert lab.goes_by().troubles == []
    assert (ben.tres, ben.jobs) == ({"total": {"cpu": 7, "gres/gpu": 0}}, {"per.submitted": 55})
    assert (lab.gpus, lab.slurm.world.jobs[2].reason, lab.states) == (8, "Priority", ["blocked", "blocked"])
    block = AccountBlock.objects.get(ended_at=None)
    assert (block.account, block.user, block.limits) == ("vision", "ben", {"GrpTRES=gres/gpu": [3, 0]})
    assert list(list_blocked_accounts(lab.cluster, moment=lab.now)) == []  # others may run
    assert "only ben" in words(page(an_operator(), "/operator/clusters/gpu1/blocks/"))
    acts = Act.objects.count()
    lab.goes_by(61)
    assert Act.objects.count() == acts
    lab.raise_to("500", "of-ben")
    lab.goes_by()
    assert (ben.tres["total"]["gres/gpu"], lab.slurm.world.jobs[1].reason) == (0, "JobHeldAdmin")
    lab.raise_to("500", "also-of-ben")
    lab.goes_by()
    assert [(row.id, row.tres, row.jobs) for row in lab.slurm.world.associations] == before
    assert lab.slurm.world.jobs[1].reason == "None"
    assert not AccountBlock.objects.filter(ended_at=None).exists()


def test_quota_041_what_op_sets_by_hand_meanwhile_is_left_and_the_account_is_blocked_beside_it(
    lab: EndingLab,
) -> None:
    ben = of_ben(lab)
    a_quota(lab.tenant, "of-ben", user="ben", amount=Decimal(100), **HOLDS)
    a_quota(lab.tenant, action=QuotaAction.NO_GPU_JOBS)
    spend(lab.cluster, "1000.00", user="ben")
    lab.goes_by()
    assert (lab.gpus, ben.tres["total"]["gres/gpu"]) == (0, 0)
    lab.raise_to("1500")
    lab.goes_by()
    assert (lab.gpus, ben.tres["total"]["gres/gpu"]) == (8, 0)
    ben.tres["total"]["gres/gpu"] = 5
    lab.goes_by(61)
    assert ben.tres["total"]["gres/gpu"] == 5  # not fought over
    lab.raise_to("1500", "of-ben")
    lab.goes_by()
    assert ben.tres["total"]["gres/gpu"] == 5


def test_quota_060_a_worker_that_dies_after_the_limit_of_a_user_was_written_leaves_nothing_behind(
    lab: EndingLab,
) -> None:
    ben = of_ben(lab)
    quota = a_quota(lab.tenant, "of-ben", user="ben", amount=Decimal(100), **HOLDS)
    source = f"quota:{quota.pk}"
    with lab.opens(lab.cluster) as port:  # nothing demands it any more
        request = Request(kind=ActKind.BLOCK, account="vision", user="ben", source=source)
        plan = enforcement_plan.plan(port=port, request=request)
        assert job_control.carry_out(port=port, plan=plan, who=source).good
    assert ben.tres["total"]["gres/gpu"] == 0
    lab.goes_by()
    lab.goes_by()
    assert (ben.tres, lab.states) == ({}, ["lifted"])


def test_quota_041_where_slurm_takes_no_limits_jobs_of_the_user_are_held_alone(settings: Any) -> None:
    settings.CLUSTERTAB_SENDS_MAIL = True
    with StandIn(38, world=a_world()) as slurm:
        lab = EndingLab(slurm)
        a_quota(lab.tenant, "of-ben", user="ben", amount=Decimal(100), **HOLDS)
        slurm.world.add(Job(1))
        spend(lab.cluster, "100.00", user="ben")
        assert lab.goes_by().troubles == []
        assert (of_ben(lab).tres, slurm.world.jobs[1].reason) == ({}, "JobHeldAdmin")


def test_quota_036_a_job_that_two_budgets_hold_goes_with_the_last_whichever_held_it(lab: EndingLab) -> None:
    for name in ("first", "second"):
        a_quota(lab.tenant, name, **HOLDS)
    lab.slurm.world.add(Job(1))
    spend(lab.cluster, "1000.00")
    lab.goes_by()
    who = Act.objects.get(kind=ActKind.HOLD).who
    quotas = {f"quota:{row.pk}": row.name for row in Quota.objects.all()}
    for name in (quotas.pop(who), *quotas.values()):
        assert lab.slurm.world.jobs[1].reason == "JobHeldAdmin"
        lab.raise_to("1500", name)
        lab.goes_by()
    assert lab.slurm.world.jobs[1].reason == "None"
