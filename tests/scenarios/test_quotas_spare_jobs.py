"""What a budget must not end: what was never warned of, and what something has spared just before the cancel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.db import connection

from billing.models import QuotaEnding, QuotaEndingState
from billing.quotas import blocks, quotas
from billing.quotas.quotas import Setter
from billing.quotas.terms import QuotaTerms
from clusters import enforcement_plan, job_control
from clusters.enforcement_plan import Request
from clusters.models import Act, ActKind, ActOutcome, Cluster
from portal.core.tenants.models import Ownership
from tests.builders import at
from tests.quota_stories import spend
from tests.scenarios.test_quotas_end_jobs import EndingLab, endings, lab, subjects, used_up

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["lab"]


def test_quota_034_a_job_that_starts_later_has_a_grace_and_warnings_of_its_own(lab: EndingLab) -> None:
    used_up(lab)
    spend(lab.cluster, "100.00", day="2026-03-03")  # what is ended gives back less than that
    lab.runs(72, "2026-03-05 13:30", gpus=1)
    lab.now = at("2026-03-05 13:46")
    lab.ends()
    lab.now = at("2026-03-05 14:00")
    assert lab.ends().ended == 1
    assert [lab.state_of(number) for number in (71, 72)] == ["CANCELLED", "RUNNING"]
    old, new = QuotaEnding.objects.order_by("pk")
    assert (old.state, old.jobs) == ("done", ["71"])
    assert old.closed_at is not None
    late = old.closed_at - at("2026-03-05 14:00")
    assert timedelta(0) <= late < timedelta(minutes=1)  # a slow machine's second
    assert (new.state, new.due_at, new.jobs) == ("announced", at("2026-03-05 16:00"), [])
    lab.goes_by()
    assert len(subjects("running jobs end at 2026-03-05 16:00")) == 1
    for minute in range(15, 120, 15):
        lab.now = at("2026-03-05 14:00") + timedelta(minutes=minute)
        assert lab.ends().ended == 0
    lab.goes_by()
    assert len(subjects("running jobs end at 2026-03-05 16:00")) == 2
    lab.runs(73, "2026-03-05 15:50", gpus=1)
    lab.now = at("2026-03-05 16:00")
    assert lab.ends().ended == 1
    assert [lab.state_of(number) for number in (72, 73)] == ["CANCELLED", "RUNNING"]
    due_at = QuotaEnding.objects.get(closed_at=None).due_at  # the run counts the seconds that it takes itself
    assert at("2026-03-05 18:00") <= due_at < at("2026-03-05 18:01")


def test_quota_034_a_second_warning_that_was_missed_is_given_and_waited_for(lab: EndingLab) -> None:
    used_up(lab)
    lab.now = at("2026-03-05 14:30")  # no worker ran since the announcement
    done = lab.ends()
    assert (done.warned, done.ended, lab.state_of(71)) == (1, 0, "RUNNING")
    assert QuotaEnding.objects.get().due_at == at("2026-03-05 14:45")
    lab.now = at("2026-03-05 14:45")
    assert lab.ends().ended == 1


def test_a_grace_made_longer_after_the_second_warning_is_warned_of_again(lab: EndingLab) -> None:
    row = used_up(lab)
    lab.now = at("2026-03-05 13:50")
    assert lab.ends().warned == 1
    terms = replace(QuotaTerms.of(row), grace_minutes=240)
    quotas.set_quota(tenant=lab.tenant, name="monthly", terms=terms, by=Setter.OWNER, moment=lab.now)
    lab.goes_by()
    lab.now = at("2026-03-05 15:50")
    assert lab.ends().warned == 1


def a_raise(lab: EndingLab) -> None:
    lab.raise_to("1500")


def a_watch(lab: EndingLab) -> None:
    lab.raise_to("1000", watch=True)


def a_longer_grace(lab: EndingLab) -> None:
    lab.raise_to("1000", grace_minutes=240)


def a_release(lab: EndingLab) -> None:
    """By the clock of another machine, which is a little ahead."""
    blocks.release_quotas(
        tenant=lab.tenant,
        until=lab.now + timedelta(days=1),
        reason="A deadline.",
        by="op",
        moment=lab.now + timedelta(seconds=2),
    )


def a_withdrawal(lab: EndingLab) -> None:
    Cluster.objects.update(may_end_jobs=False)


def another_owner(lab: EndingLab) -> None:
    Ownership.objects.update(until=lab.now)


@pytest.mark.parametrize("spares", [a_raise, a_watch, a_longer_grace, a_release, a_withdrawal, another_owner])
def test_quota_034_what_spares_jobs_between_two_cancels_spares_the_second(
    lab: EndingLab, spares: Callable[[EndingLab], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    used_up(lab)
    lab.runs(72, "2026-03-05 11:00", gpus=1)
    carry_out: Any = job_control.carry_out

    def carried_out(**given: Any) -> Any:
        done = carry_out(**given)
        if given["plan"].request.kind == ActKind.CANCEL:
            spares(lab)
        return done

    lab.is_due()
    monkeypatch.setattr(job_control, "carry_out", carried_out)
    assert lab.ends().ended == 1
    assert [lab.state_of(number) for number in (71, 72)] == ["CANCELLED", "RUNNING"]
    assert endings()[0] == ("done", ["71"])


def a_cancel_of_a_dead_worker(lab: EndingLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Job 71 is cancelled at 14:00, and the worker dies before it writes down that it is."""
    lab.is_due()
    row = QuotaEnding.objects.get()

    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, lab.opens(lab.cluster) as port:
        plan = enforcement_plan.plan(port=port, request=Request(kind=ActKind.CANCEL, job=71))
        patch.setattr(job_control, "_end", dies)
        with pytest.raises(KeyboardInterrupt):
            job_control.carry_out(port=port, plan=plan, who=row.source, why="as the worker that died")
    assert (Act.objects.latest("pk").outcome, lab.state_of(71)) == (ActOutcome.INTENDED, "CANCELLED")
    lab.reads(lab.cluster, moment=lab.now)  # the usual pull knows of it before anybody looks again


def test_quota_060_a_job_that_a_killed_worker_ended_is_told_of(
    lab: EndingLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    used_up(lab)
    a_cancel_of_a_dead_worker(lab, monkeypatch)
    assert lab.ends().ended == 1
    assert endings() == [("done", ["71"])]
    assert Act.objects.filter(kind=ActKind.CANCEL).count() == 1


def test_quota_060_a_raise_after_a_killed_worker_does_not_say_that_nothing_was_ended(
    lab: EndingLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    used_up(lab)
    a_cancel_of_a_dead_worker(lab, monkeypatch)
    lab.raise_to("1500")
    lab.goes_by()
    assert subjects("not ended") == []
    lab.ends()
    lab.goes_by()
    assert (subjects("not ended"), subjects("was ended")) == (
        [],
        ["Budget monthly: 1 running job was ended"],
    )
    row = QuotaEnding.objects.get()
    assert (row.state, row.jobs, row.closed_at) == (QuotaEndingState.DONE, ["71"], lab.now)


def test_the_operators_leave_counts_within_two_passes(lab: EndingLab) -> None:
    used_up(lab)
    Cluster.objects.update(may_end_jobs=False)
    lab.ends()
    lab.goes_by()
    assert endings() == [("stopped", [])]
    Cluster.objects.update(may_end_jobs=True)
    lab.ends()
    lab.goes_by()
    assert [state for state, _jobs in endings()] == ["stopped", "announced"]
    assert QuotaEnding.objects.get(closed_at=None).due_at == lab.now + timedelta(hours=2)


def test_a_job_that_moved_to_another_account_under_its_number_is_left(lab: EndingLab) -> None:
    used_up(lab)
    lab.now = at("2026-03-05 13:50")
    lab.ends()
    lab.slurm.world.jobs[71].account = "speech"
    lab.now = at("2026-03-05 14:00")
    assert (lab.ends().ended, lab.state_of(71)) == (0, "RUNNING")


def test_one_more_cancel_costs_few_queries(lab: EndingLab) -> None:
    used_up(lab)
    for number in range(72, 78):
        lab.runs(number, "2026-03-05 11:00", gpus=1)
    lab.is_due()
    counts = []
    connection.force_debug_cursor = True
    carry_out: Any = job_control.carry_out
    try:
        with pytest.MonkeyPatch.context() as patch:

            def carried_out(**arguments: Any) -> Any:
                counts.append(len(connection.queries_log))
                return carry_out(**arguments)

            patch.setattr(job_control, "carry_out", carried_out)
            assert lab.ends().ended == 7
    finally:
        connection.force_debug_cursor = False
    assert max(later - earlier for earlier, later in pairwise(counts)) <= 10  # with BEGIN and COMMIT
