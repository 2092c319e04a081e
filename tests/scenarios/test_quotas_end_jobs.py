"""A budget that holds what waits, or ends what runs after a grace: only by its own hand, and only while it holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import date, timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.core import mail

from billing.models import Quota, QuotaAction, QuotaEnding, QuotaEvery
from billing.quotas import ending_run, quotas, running
from billing.quotas.job_ends import EndTally
from billing.quotas.quotas import Setter
from billing.quotas.terms import QuotaError, QuotaTerms
from billing.rating.pulls import Pulled, PullOutcome
from clusters import enforcement_plan, job_control
from clusters.enforcement_plan import Request
from clusters.models import Act, ActKind, Cluster
from portal.core.events.models import Event
from portal.core.tenants.scope import acting_scope
from tests.builders import a_job, a_person, at, ingest
from tests.fakes.scheduler_port import a_world
from tests.fakes.slurm_world import Job
from tests.fakes.slurmrestd import StandIn
from tests.quota_stories import a_quota, spend
from tests.scenarios.test_quotas_block import Lab
from tests.web.house import page
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db(transaction=True)

ENDS = {"action": QuotaAction.END_JOBS, "grace_minutes": 120}


class EndingLab(Lab):
    """Of 1,000.00 a month Vision has used 990.00, and jobs of Ben's run on at 2.00 an hour and GPU."""

    def __init__(self, slurm: StandIn) -> None:
        super().__init__(slurm)
        self.cluster.may_end_jobs = True
        self.cluster.save()
        self.outcome = PullOutcome.DONE
        self.pulls = 0

    def runs(self, number: int, since: str, **fields: Any) -> None:
        submitted = int(at(since).timestamp())
        self.slurm.world.add(
            Job(number, state="RUNNING", reason="None", submitted=submitted, started=submitted)
        )
        self.facts = {**getattr(self, "facts", {}), number: {"started": since, **fields}}
        self.reads(self.cluster, moment=self.now)

    def reads(self, cluster: Cluster, *, moment: Any) -> Pulled:
        """What a pull stores: each job as the scheduler has it now."""
        self.pulls += 1
        if self.outcome is PullOutcome.DONE:
            rows = []
            for number, fields in self.facts.items():
                job = self.slurm.world.jobs[number]
                facts = {"ended": None, "seen_until": int(moment.timestamp()), "state": "RUNNING"}
                if job.done:
                    facts = {"ended": job.ended, "state": job.state}
                rows.append(a_job(job_id=str(number), **{**fields, **facts}))
            ingest(cluster, *rows)
        error = "slurmrestd does not answer." if self.outcome is PullOutcome.FAILED else ""
        return Pulled(self.outcome, error=error)

    def ends(self) -> EndTally:
        return ending_run.end_jobs(moment=self.now, opens=self.opens, reads=self.reads)

    def is_due(self) -> None:
        """The grace is over, and workers have warned a second time."""
        self.now = at("2026-03-05 13:46")
        self.ends()
        self.now = at("2026-03-05 14:00")

    def state_of(self, number: int) -> str:
        return self.slurm.world.jobs[number].state

    @property
    def told(self) -> list[str]:
        rows = Event.objects.filter(type__in=["quota.ending", "quota.ended"]).order_by("pk")
        return [f"{row.type} {row.state}" for row in rows]


@pytest.fixture
def lab(settings: Any) -> Iterator[EndingLab]:
    settings.CLUSTERTAB_SENDS_MAIL = True
    with StandIn(44, world=a_world()) as slurm:
        yield EndingLab(slurm)


def endings() -> list[tuple[str, list[str]]]:
    return list(QuotaEnding.objects.order_by("pk").values_list("state", "jobs"))


def subjects(word: str) -> list[str]:
    return [str(message.subject) for message in mail.outbox if word in str(message.subject)]


def used_up(lab: EndingLab, **fields: Any) -> Quota:
    """A budget that four GPUs, since 10:00, use up at 12:00 of the 5th of March."""
    row = a_quota(lab.tenant, **{**ENDS, **fields})
    spend(lab.cluster, "984.00")
    lab.runs(71, "2026-03-05 10:00", gpus=4, time_limit=7 * 86400)
    lab.goes_by(0)
    return row


def test_quota_034_running_jobs_end_after_two_warnings_and_a_fresh_look(lab: EndingLab) -> None:
    used_up(lab)
    assert lab.states == ["blocked"]
    row = QuotaEnding.objects.get()
    assert (row.state, row.due_at) == ("announced", at("2026-03-05 14:00"))
    assert subjects("running jobs end") == ["Budget monthly: running jobs end at 2026-03-05 14:00 UTC"]
    lab.ends()
    lab.now = at("2026-03-05 13:44")
    assert (lab.ends().warned, lab.state_of(71)) == (0, "RUNNING")
    lab.now = at("2026-03-05 13:46")
    assert [lab.ends().warned, lab.ends().warned] == [1, 0]
    lab.goes_by(0)
    assert len(subjects("running jobs end")) == 2
    lab.now, pulls = at("2026-03-05 14:00"), lab.pulls
    done = lab.ends()
    assert (done.ended, done.troubles, lab.pulls - pulls) == (1, [], 1)
    assert (lab.state_of(71), endings()) == ("CANCELLED", [("done", ["71"])])
    assert lab.told == ["quota.ending announced", "quota.ending soon", "quota.ended ended"]
    act = Act.objects.get(kind=ActKind.CANCEL)
    assert act.why == "budget monthly of vision is used up, and its grace period has ended"
    lab.goes_by()
    assert subjects("ended") == ["Budget monthly: 1 running job was ended"]
    lab.now += timedelta(hours=1)
    assert lab.ends().ended == 0


def test_quota_034_a_raise_in_the_grace_stops_it_and_says_so(lab: EndingLab) -> None:
    used_up(lab)
    lab.is_due()
    lab.now = at("2026-03-05 13:59")
    lab.raise_to("1500")
    lab.now = at("2026-03-05 14:00")  # the raise is known before any pass has seen it
    assert lab.ends().ended == 0
    lab.goes_by()
    assert (lab.state_of(71), endings()) == ("RUNNING", [("stopped", [])])
    assert subjects("not ended") == ["Budget monthly: running jobs are not ended"]
    lab.now = at("2026-03-05 15:00")
    assert (lab.ends().ended, lab.told[-1]) == (0, "quota.ending stopped")


def test_quota_064_a_pull_that_fails_ends_nothing_and_is_tried_again(lab: EndingLab) -> None:
    used_up(lab)
    lab.is_due()
    for outcome in (PullOutcome.FAILED, PullOutcome.BUSY):
        lab.outcome = outcome
        done = lab.ends()
        assert (done.ended, lab.state_of(71), "no job was ended" in done.troubles[0]) == (0, "RUNNING", True)
        lab.now += timedelta(minutes=5)
    lab.outcome = PullOutcome.DONE
    assert (lab.ends().ended, lab.state_of(71)) == (1, "CANCELLED")
    assert QuotaEnding.objects.get().error == ""


def test_quota_064_what_is_only_counted_on_ends_nothing_and_a_pull_gives_it_back(lab: EndingLab) -> None:
    used_up(lab)
    job = lab.slurm.world.jobs[71]  # it had ended before all was used
    job.state, job.ended = "COMPLETED", int(at("2026-03-05 10:10").timestamp())
    lab.is_due()
    assert lab.ends().ended == 0
    lab.goes_by()
    assert (endings(), lab.states, lab.gpus) == ([("stopped", [])], ["lifted"], 8)


def test_quota_034_jobs_from_before_the_budget_run_on_unless_it_says_so(lab: EndingLab) -> None:
    used_up(lab, made="2026-03-05 10:30")
    lab.runs(72, "2026-03-05 11:00", gpus=1)
    lab.is_due()
    assert lab.ends().ended == 1
    assert [lab.state_of(number) for number in (71, 72)] == ["RUNNING", "CANCELLED"]
    lab.raise_to("1000", ends_older=True)
    lab.now += timedelta(minutes=10)
    assert lab.ends().ended == 0  # what was never warned
    lab.goes_by()
    lab.now += timedelta(minutes=106)
    lab.ends()
    lab.now += timedelta(minutes=14)
    assert (lab.ends().ended, lab.state_of(71)) == (1, "CANCELLED")
    assert endings() == [("done", ["72"]), ("done", ["71"])]


def test_quota_031_ending_needs_the_operators_leave_and_is_off_unless_chosen(lab: EndingLab) -> None:
    lab.cluster.may_end_jobs = False
    lab.cluster.save()
    used_up(lab)
    lab.now = at("2026-03-05 18:00")
    lab.goes_by()
    assert (lab.ends().ended, endings(), lab.states) == (0, [], ["blocked"])
    assert Quota._meta.get_field("action").default == QuotaAction.NOTIFY
    with pytest.raises(QuotaError, match="Only a quota that ends jobs has a grace"):
        a_quota(lab.tenant, "other", grace_minutes=60)
    with pytest.raises(QuotaError, match="15 to 10,080 minutes"):
        a_quota(lab.tenant, "other", action=QuotaAction.END_JOBS, grace_minutes=5)


def test_quota_034_leave_that_is_taken_back_in_the_grace_ends_nothing(lab: EndingLab) -> None:
    used_up(lab)
    Cluster.objects.update(may_end_jobs=False)
    lab.is_due()
    assert (lab.ends().ended, lab.state_of(71)) == (0, "RUNNING")


def test_quota_034_others_jobs_and_waiting_ones_are_never_ended(lab: EndingLab) -> None:
    """An array of which a task began before the budget is left, and so is a job that was requeued meanwhile."""
    used_up(lab, user="ben")
    lab.runs(72, "2026-03-05 11:00", gpus=1, user="eve")
    lab.slurm.world.jobs[71].state = "PENDING"
    lab.is_due()
    done = lab.ends()
    assert (done.ended, done.troubles) == (0, ["gpu1/vision: Job 71 waits again: it was left."])
    assert [lab.state_of(number) for number in (71, 72)] == ["PENDING", "RUNNING"]
    lab.slurm.world.jobs[71].state = "RUNNING"
    lab.now += timedelta(minutes=5)
    assert (lab.ends().ended, lab.state_of(72)) == (1, "RUNNING")


def test_quota_043_what_is_watched_ends_nothing(lab: EndingLab) -> None:
    used_up(lab, watch=True)
    lab.now = at("2026-03-05 18:00")
    assert (lab.ends().ended, endings(), subjects("running jobs end")) == (0, [("watched", [])], [])


def test_quota_060_a_worker_killed_after_the_cancel_tells_of_it_all_the_same(lab: EndingLab) -> None:
    used_up(lab)
    lab.is_due()
    row = QuotaEnding.objects.select_related("account__cluster", "quota__tenant").get()
    with lab.opens(lab.cluster) as port:
        plan = enforcement_plan.plan(port=port, request=Request(kind=ActKind.CANCEL, job=71))
        job_control.carry_out(port=port, plan=plan, who=row.source, why="as the worker that died")
    Act.objects.update()  # nothing of ours was written
    lab.reads(lab.cluster, moment=lab.now)
    lab.ends()
    assert endings() == [("done", ["71"])]
    assert Act.objects.filter(kind=ActKind.CANCEL).count() == 1


def test_quota_033_the_page_says_what_runs_on_and_what_it_still_costs(lab: EndingLab) -> None:
    row = a_quota(lab.tenant, action=QuotaAction.NO_GPU_JOBS)
    spend(lab.cluster, "999.00")
    lab.runs(71, "2026-03-05 11:00", gpus=2)
    lab.runs(72, "2026-03-05 11:00", gpus=1)
    lab.runs(73, "2026-03-05 11:00", gpus=1, time_limit=7 * 86400)
    lab.goes_by(0)
    with acting_scope(lab.tenant):
        (cost,) = running.load_running_costs([row], moment=lab.now).values()
    assert (cost.jobs, int(cost.amount)) == (3, 192)
    lab.facts[73]["time_limit"] = 13 * 3600  # twelve hours are left of it
    lab.reads(lab.cluster, moment=lab.now)
    with acting_scope(lab.tenant):
        (cost,) = running.load_running_costs([row], moment=lab.now).values()
    assert (cost.jobs, int(cost.amount)) == (3, 168)
    term = {"every": QuotaEvery.TERM, "first_day": date(2026, 3, 1), "end_day": date(2036, 1, 1)}
    a_quota(lab.tenant, "term", "2026-03-05 12:00", **term, **ENDS)
    lab.goes_by(0)
    ann = a_person(tenant=lab.tenant)
    text = words(page(ann, "/t/vision/budgets/"))
    # The hours of the third are over by the time of whoever looks.
    assert "Up to $144.00 a day more unless these 2 running jobs end." in text
    assert "Running jobs of vision end at 2026-03-05 14:00" in text
    asked = {"name": "new", "amount": "5", "action": "end-jobs", "grace_minutes": "30", "act": "preview"}
    lab.cluster.may_end_jobs = False
    lab.cluster.save()
    text = words(page(ann, f"/t/vision/budgets/?{urlencode(asked | {'measure': 'money', 'every': 'month'})}"))
    assert "and running jobs end after a grace of 30 minutes" in text
    assert "Running jobs are not ended on gpu1: that needs the operator’s leave." in text


def test_a_longer_grace_postpones_what_is_announced(lab: EndingLab) -> None:
    row = used_up(lab)
    terms = replace(QuotaTerms.of(row), grace_minutes=240)
    quotas.set_quota(tenant=lab.tenant, name="monthly", terms=terms, by=Setter.OWNER, moment=lab.now)
    lab.goes_by()
    assert QuotaEnding.objects.get().due_at == at("2026-03-05 16:00")
    lab.now = at("2026-03-05 14:30")
    assert (lab.ends().ended, lab.state_of(71)) == (0, "RUNNING")
