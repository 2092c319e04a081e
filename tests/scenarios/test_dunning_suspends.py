"""Who owes too long is suspended, if the policy says so: announced, read back, and undone by being paid."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import date, timedelta
from typing import Any

import pytest
from django.core import mail
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.dunning import dunning_run, scheduler_blocks, suspensions
from billing.dunning.scheduler_blocks import BlockTally
from billing.emails import delivery
from billing.invoicing import credit_notes
from billing.models import Invoice, Notice, SuspendedAccount, Suspension
from billing.receivables import dunning_policies, pauses, settlement
from billing.rules.money import Money
from clusters import enforcement_plan
from clusters.connectors.slurm.acts import SlurmActs
from clusters.enforcement_plan import Plan, SchedulerPort
from clusters.job_control import carry_out
from clusters.models import Act, Cluster
from portal.core.tenants import ownership
from tests import stories
from tests.builders import a_job, a_plan, a_seller, a_tenant, at, ingest, own
from tests.fakes.scheduler_port import a_port, a_world
from tests.fakes.slurmrestd import StandIn
from tests.tiers import strides

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.peers]  # weeks go by, day after day


class Lab:
    """March's invoice of the vision lab, 4.00, due on 15 April; its account is vision, which may have 8 GPUs."""

    def __init__(self, slurm: StandIn) -> None:
        self.slurm = slurm
        self.cluster = a_port(slurm).cluster
        a_seller()
        self.tenant = a_tenant(
            "vision-lab",
            plan=a_plan(),
            accounts=[(self.cluster, "vision")],
            email="bills@vision.example",
        )
        job = a_job(started="2026-03-02 10:00", ended="2026-03-02 12:00")
        ingest(self.cluster, job, as_of="2026-04-20")
        stories.close("2026-03", self.tenant, on="2026-04-01")
        Notice.objects.all().delete()  # that it was issued, and receipts, are told in other stories
        dunning_policies.set_policy(
            tenant=None,
            since=date(2026, 1, 1),
            suspend=30,
            announce=7,
            reminders=[],
            write_off=0,
            receipts=False,
        )
        self.now = at("2026-04-15 09:00")

    @property
    def invoice(self) -> Invoice:
        return stories.invoice_of(self.tenant, "2026-03")

    def opens(self, cluster: Cluster) -> SchedulerPort:
        return a_port(self.slurm)

    def goes_by(self, days: int = 1, *, swept: bool = False) -> None:
        for stride in strides(days) if swept else [1] * days:
            self.now += timedelta(days=stride)
            self.acts()

    def until(self, day: str) -> None:
        while self.now < at(f"{day} 09:00"):
            self.goes_by()

    def acts(self) -> BlockTally:
        dunning_run.run_dunning(moment=self.now)
        delivery.send_notices(moment=self.now)
        done = scheduler_blocks.enforce_blocks(moment=self.now, opens=self.opens)
        delivery.send_notices(moment=self.now)
        return done

    def pay(self, amount: str = "4.00") -> None:
        settlement.record_payment(
            invoice=self.invoice,
            amount=Money.of(amount, "USD"),
            received_on=self.now.date(),
            reference="SEPA 1",
            recorded_by="op",
        )

    @property
    def gpus(self) -> int | None:
        return self.slurm.world.limits("vision").tres.get("total", {}).get("gres/gpu")

    @property
    def accounts(self) -> list[str]:
        return list(SuspendedAccount.objects.order_by("pk").values_list("state", flat=True))


@pytest.fixture
def lab(settings: Any) -> Iterator[Lab]:
    settings.CLUSTERTAB_SENDS_MAIL = True
    with StandIn(44, world=a_world()) as slurm:
        yield Lab(slurm)


def subjects() -> list[str]:
    """Without documents, of which other stories tell."""
    all_subjects = [str(message.subject) for message in mail.outbox]
    return [
        subject
        for subject in all_subjects
        if not subject.startswith(("Credit note", "Receipt", "Invoice INV"))
    ]


@pytest.mark.swept
def test_case_078_it_is_announced_then_done_and_paying_undoes_all_of_it(lab: Lab) -> None:
    lab.goes_by(23, swept=True)  # until 8 May
    assert subjects() == ["GPU jobs will be suspended on 15 May 2026: invoice INV-2026-0001 is overdue"]
    lab.until("2026-05-14")
    assert (lab.gpus, lab.accounts) == (8, [])
    lab.until("2026-05-15")
    assert (lab.gpus, lab.accounts) == (0, ["blocked"])
    assert subjects()[1:] == ["GPU jobs suspended: invoice INV-2026-0001 is overdue"]
    lab.goes_by(10, swept=True)
    assert len(mail.outbox) == 2
    assert Act.objects.count() == 1

    lab.pay()
    lab.acts()
    assert (lab.gpus, lab.accounts) == (8, ["lifted"])
    assert subjects()[2:] == ["GPU jobs of Vision Lab start again"]
    assert Suspension.objects.get().end_reason == "Nothing that is owed demands it any more."
    lab.goes_by(30, swept=True)
    assert (len(mail.outbox), Act.objects.count()) == (3, 2)
    assert list(Act.objects.order_by("pk").values_list("who", "why")) == [
        ("dunning", "INV-2026-0001 is not paid"),
        ("dunning", "nothing demands it any more: INV-2026-0001"),
    ]


def test_a_credit_note_over_a_part_does_not_end_a_suspension_that_is_still_demanded(lab: Lab) -> None:
    """Most of it came and went back before anything was announced: what is credited later rewrites none of that."""
    lab.until("2026-04-20")
    lab.pay("3.00")
    lab.goes_by()
    lab.pay("-3.00")
    lab.until("2026-05-15")
    assert (lab.gpus, lab.accounts) == (0, ["blocked"])
    credit_notes.issue_credit_note(
        invoice=lab.invoice,
        reason="goodwill",
        by="op",
        on=lab.now.date(),
        net=Money.of("2.00", "USD"),
        moment=lab.now,
    )
    lab.goes_by(days=3)
    assert (lab.gpus, subjects()[2:]) == (0, [])
    lab.pay("2.00")
    lab.goes_by()
    assert subjects()[2:] == ["GPU jobs of Vision Lab start again"]


def test_suspension_is_off_unless_the_policy_says_so(lab: Lab) -> None:
    dunning_policies.set_policy(tenant=lab.tenant, since=date(2026, 4, 1), suspend=0)
    lab.goes_by(60)
    assert (lab.gpus, Suspension.objects.count(), mail.outbox) == (8, 0, [])


@pytest.mark.sample
def test_nobody_is_suspended_before_it_was_announced_so_many_days_ago(lab: Lab) -> None:
    lab.now = at("2026-06-01 09:00")  # nothing ran until then
    lab.acts()
    assert subjects() == ["GPU jobs will be suspended on 8 June 2026: invoice INV-2026-0001 is overdue"]
    lab.until("2026-06-07")
    assert lab.gpus == 8
    lab.until("2026-06-08")
    assert lab.gpus == 0


def test_what_is_only_kept_here_announces_nothing(lab: Lab, settings: Any) -> None:
    settings.CLUSTERTAB_SENDS_MAIL = False
    lab.goes_by(60)
    assert (lab.gpus, Notice.objects.get().state) == (8, "drafted")


def by_hand(lab: Lab, plans: Callable[..., Plan]) -> None:
    with lab.opens(lab.cluster) as port:
        assert carry_out(port=port, plan=plans(port=port, account="vision"), who="op", why="noisy").good


@pytest.mark.sample
def test_an_account_that_op_blocked_by_hand_stays_blocked_until_it_is_paid_too(lab: Lab) -> None:
    by_hand(lab, enforcement_plan.plan_block)
    lab.until("2026-05-16")
    assert (lab.gpus, lab.accounts) == (0, ["blocked"])
    by_hand(lab, enforcement_plan.plan_unblock)
    assert lab.gpus == 0  # the invoice is not paid
    lab.pay()
    lab.goes_by()
    assert (lab.gpus, lab.accounts) == (8, ["lifted"])
    assert subjects()[2:] == ["GPU jobs of Vision Lab start again"]


def test_who_pays_stays_blocked_where_op_blocked_it_and_the_letter_says_so(lab: Lab) -> None:
    lab.until("2026-05-16")
    by_hand(lab, enforcement_plan.plan_block)
    lab.pay()
    lab.goes_by()
    assert (lab.gpus, lab.accounts) == (0, ["lifted"])
    assert subjects()[2:] == ["Vision Lab is no longer suspended"]
    assert "Except in vision: the cluster’s operators block it for another" in mail.outbox[-1].body
    by_hand(lab, enforcement_plan.plan_unblock)
    assert lab.gpus == 8


def test_a_scheduler_that_does_not_answer_is_shown_and_asked_again(lab: Lab) -> None:
    def fails(cluster: Cluster) -> SchedulerPort:
        raise enforcement_plan.LimitError(f"{cluster.name} does not answer.")

    lab.until("2026-05-14")
    lab.now += timedelta(days=1)
    dunning_run.run_dunning(moment=lab.now)
    done = scheduler_blocks.enforce_blocks(moment=lab.now, opens=fails)
    assert done.troubles == ["gpu1/vision: gpu1 does not answer."]
    row = SuspendedAccount.objects.get()
    assert (row.state, row.error, row.tries) == ("requested", "gpu1 does not answer.", 1)
    assert (
        scheduler_blocks.enforce_blocks(moment=lab.now, opens=fails).troubles == []
    )  # not before five minutes have gone by
    assert [s for s in subjects() if s.startswith("GPU jobs suspended")] == []
    lab.now += timedelta(minutes=5)
    lab.acts()
    assert (lab.gpus, lab.accounts) == (0, ["blocked"])
    assert SuspendedAccount.objects.get().error == ""


def test_who_pays_while_the_scheduler_is_away_is_never_blocked(lab: Lab) -> None:
    def fails(cluster: Cluster) -> SchedulerPort:
        raise enforcement_plan.LimitError("away")

    lab.until("2026-05-14")
    lab.now += timedelta(days=1)
    dunning_run.run_dunning(moment=lab.now)
    scheduler_blocks.enforce_blocks(moment=lab.now, opens=fails)
    lab.pay()
    lab.now += timedelta(hours=1)
    lab.acts()
    assert (lab.gpus, lab.accounts, Act.objects.count()) == (8, ["lifted"], 0)
    assert len(mail.outbox) == 1


def test_accounts_below_that_are_somebody_elses_are_never_blocked_with_it(lab: Lab) -> None:
    own(lab.tenant, lab.cluster, "acme")
    a_tenant("speech-lab", accounts=[(lab.cluster, "speech")])  # below acme, as vision is
    lab.until("2026-05-15")
    errors = dict(SuspendedAccount.objects.values_list("account__name", "error"))
    assert errors == {
        "vision": "",
        "acme": "Below acme lies speech of speech-lab, which would be blocked too: block what is to be blocked by "
        "hand.",
    }
    assert lab.gpus == 0
    assert "total" not in lab.slurm.world.limits("acme").tres


def test_an_account_that_nobody_foresaw_keeps_no_other_from_being_blocked_or_freed(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    own(lab.tenant, lab.cluster, "speech")
    read = SlurmActs.limits

    def limits_of(acts: SlurmActs, account: str, user: str = "") -> Mapping[str, int]:
        if account == "vision":
            raise TypeError("a limit of a form that no release has had yet")
        return read(acts, account, user)

    def speech() -> int | None:
        return lab.slurm.world.limits("speech").tres.get("total", {}).get("gres/gpu")

    monkeypatch.setattr(SlurmActs, "limits", limits_of)
    lab.until("2026-05-15")
    assert (lab.gpus, speech()) == (8, 0)
    errors = dict(SuspendedAccount.objects.values_list("account__name", "error"))
    assert errors == {
        "vision": "Something failed here, not at the cluster (TypeError); the worker's log says what.",
        "speech": "",
    }
    monkeypatch.undo()
    lab.goes_by()
    assert (lab.gpus, speech()) == (0, 0)


def test_a_pause_ends_a_suspension_and_it_comes_back_when_the_pause_is_over(lab: Lab) -> None:
    lab.until("2026-05-15")
    assert lab.gpus == 0
    pauses.pause_dunning(
        tenant=lab.tenant,
        invoice=None,
        until=date(2026, 5, 20),
        reason="they pay next week",
        by="op",
        moment=lab.now,
    )
    lab.acts()
    assert lab.gpus == 8
    lab.until("2026-05-19")
    assert lab.gpus == 8
    lab.until("2026-05-20")
    assert (lab.gpus, lab.accounts) == (0, ["lifted", "blocked"])


def test_accounts_that_change_hands_meanwhile_follow_their_owner(lab: Lab) -> None:
    lab.until("2026-05-15")
    (owned,) = lab.tenant.ownerships.all()
    ownership.amend(ownership=owned, since=None, until=lab.now + timedelta(hours=1))
    own(lab.tenant, lab.cluster, "speech")
    lab.goes_by()
    assert lab.gpus == 8
    assert lab.slurm.world.limits("speech").tres["total"] == {"gres/gpu": 0}


def test_an_account_that_is_given_away_and_back_is_blocked_again(lab: Lab) -> None:
    lab.until("2026-05-15")
    (owned,) = lab.tenant.ownerships.all()
    ownership.amend(ownership=owned, since=None, until=lab.now + timedelta(hours=1))
    lab.goes_by()
    assert (lab.gpus, lab.accounts) == (8, ["lifted"])
    own(lab.tenant, lab.cluster, "vision", since="2026-05-16 12:00")
    lab.goes_by()
    assert (lab.gpus, lab.accounts) == (0, ["blocked"])
    lab.pay()
    lab.goes_by()
    assert (lab.gpus, lab.accounts) == (8, ["lifted"])


def test_what_was_asked_for_while_the_suspension_ended_is_not_blocked_for_ever(lab: Lab) -> None:
    lab.until("2026-05-15")
    lab.pay()
    lab.acts()
    assert (lab.gpus, lab.accounts) == (8, ["lifted"])
    SuspendedAccount.objects.update(state="requested")  # as a worker did that had read it before it ended
    lab.goes_by(2)
    assert (lab.gpus, lab.accounts) == (8, ["lifted"])


def test_who_was_told_already_costs_no_query_of_its_own(lab: Lab) -> None:
    lab.until("2026-05-16")
    with CaptureQueriesContext(connection) as begun:
        suspensions.notify_tenants(moment=lab.now)
    lab.pay()
    lab.goes_by()
    with CaptureQueriesContext(connection) as over:
        suspensions.notify_tenants(moment=lab.now)
    assert (len(begun), len(over), len(mail.outbox)) == (3, 3, 3)


@pytest.mark.parametrize("at_statement", [1, 7, 13, 19, 25, 31, 37])
def test_killed_at_any_statement_it_goes_on_and_each_act_is_done_once(lab: Lab, at_statement: int) -> None:
    lab.until("2026-05-14")
    lab.now += timedelta(days=1)
    dunning_run.run_dunning(moment=lab.now)
    killed = dies_at(lab, at_statement)
    for _ in range(3):
        lab.now += timedelta(hours=7)
        lab.acts()
    assert (lab.gpus, lab.accounts) == (0, ["blocked"])
    assert len([row for row in Act.objects.all() if row.outcome == "done"]) == 1
    assert len([s for s in subjects() if s.startswith("GPU jobs suspended")]) == 1
    assert killed or at_statement > 20


class KilledError(BaseException):
    """The process is gone: nothing handles it."""


def dies_at(lab: Lab, statement: int) -> bool:
    """Enforce, and be killed before the given statement to the database; whether it came so far."""
    left = [statement]

    def count(execute: Any, *args: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise KilledError
        return execute(*args)

    try:
        with connection.execute_wrapper(count):
            scheduler_blocks.enforce_blocks(moment=lab.now, opens=lab.opens)
    except KilledError:
        connection.close()
        return True
    return False
