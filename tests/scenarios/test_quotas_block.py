"""A budget that acts: its accounts are blocked when it is used up, read back, and free again by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core import mail
from django.core.management import call_command

from billing.dunning.scheduler_blocks import BlockTally
from billing.emails import delivery
from billing.models import QuotaAction, QuotaBlock, QuotaBlockState, QuotaPeriod
from billing.quotas import blocks, quotas, review
from billing.quotas.quotas import Setter
from billing.quotas.terms import QuotaError
from clusters import enforcement_plan, job_control
from clusters.connectors.base import ConnectorError
from clusters.enforcement_plan import LimitError, SchedulerPort
from clusters.models import Act, Cluster
from portal.core.events.models import Event
from portal.core.webhooks.models import Delivery
from tests.builders import a_plan, a_tenant, at, own
from tests.fakes.receiver import receiving
from tests.fakes.scheduler_port import a_port, a_world
from tests.fakes.slurmrestd import StandIn
from tests.quota_stories import a_quota, spend
from tests.webhooks import Clock, a_webhook, deliver, inner_networks

pytestmark = pytest.mark.django_db(transaction=True)

BLOCKS = {"action": QuotaAction.NO_GPU_JOBS}


class Lab:
    """Vision may spend 1,000.00 a month; its account vision may hold 8 GPUs at once."""

    def __init__(self, slurm: StandIn) -> None:
        self.slurm = slurm
        self.cluster = a_port(slurm).cluster
        self.tenant = a_tenant(
            "vision",
            plan=a_plan(),
            accounts=[(self.cluster, "vision")],
            email="bills@vision.example",
        )
        self.now = at("2026-03-05 12:00")
        self.is_away = False

    def opens(self, cluster: Cluster) -> SchedulerPort:
        if self.is_away:
            raise ConnectorError("connect-refused", retry=True, address="slurmrestd")
        return a_port(self.slurm)

    def goes_by(self, seconds: int = 60) -> BlockTally:
        """A pass, its e-mails, and what workers carry out."""
        self.now += timedelta(seconds=seconds)
        review.review_quotas(moment=self.now)
        delivery.send_notices(moment=self.now)
        return blocks.enforce_blocks(moment=self.now, opens=self.opens)

    def raise_to(self, amount: str, name: str = "monthly", **fields: Any) -> None:
        row = quotas.list_quotas(self.tenant).get(name=name)
        terms = blocks_terms(row, amount=Decimal(amount), **fields)
        quotas.set_quota(tenant=self.tenant, name=name, terms=terms, by=Setter.OPERATOR, moment=self.now)

    @property
    def gpus(self) -> int | None:
        return self.slurm.world.limits("vision").tres.get("total", {}).get("gres/gpu")

    @property
    def submits(self) -> int | None:
        return self.slurm.world.limits("vision").jobs.get("per.submitted")

    @property
    def states(self) -> list[str]:
        return list(QuotaBlock.objects.order_by("pk").values_list("state", flat=True))


def blocks_terms(row: Any, **fields: Any) -> Any:
    from dataclasses import replace

    from billing.quotas.terms import QuotaTerms

    return replace(QuotaTerms.of(row), **fields)


@pytest.fixture
def lab(settings: Any) -> Iterator[Lab]:
    settings.CLUSTERTAB_SENDS_MAIL = True
    with StandIn(44, world=a_world()) as slurm:
        yield Lab(slurm)


def events() -> list[str]:
    rows = Event.objects.filter(type__in=["quota.blocked", "quota.lifted"]).order_by("pk")
    return list(rows.values_list("type", flat=True))


def _refuse(*_: Any, **__: Any) -> None:
    raise ConnectionRefusedError("mail.example does not answer")


def test_quota_029_a_mail_server_and_a_webhook_that_are_down_hold_up_no_block(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_quota(lab.tenant, thresholds=("100%",), **BLOCKS)
    with inner_networks():
        with receiving() as receiver:
            a_webhook(receiver, lab.tenant, "quota.threshold", "quota.blocked")
        spend(lab.cluster, "1000.00")
        clock = Clock(lab.now)
        with monkeypatch.context() as patched:
            patched.setattr("django.core.mail.backends.locmem.EmailBackend.open", _refuse, raising=False)
            assert (lab.goes_by().blocked, lab.gpus) == (1, 0)
            assert deliver(clock) == 2
            assert mail.outbox == []
        sent = Delivery.objects.order_by("pk").values_list("type", "state", "attempts")
        assert list(sent) == [("quota.threshold", "waiting", 1), ("quota.blocked", "waiting", 1)]
        lab.goes_by(5 * 3600)
        assert [str(message.subject) for message in mail.outbox] == ["Budget monthly: 100% is used"]
        lab.raise_to("2000.00")
        assert (lab.goes_by().lifted, lab.gpus) == (1, 8)


def test_quota_032_what_is_used_up_blocks_the_account_within_two_passes_and_says_so(lab: Lab) -> None:
    a_quota(lab.tenant, **BLOCKS)
    spend(lab.cluster, "999.00")
    lab.goes_by()
    assert (lab.gpus, lab.states) == (8, [])
    spend(lab.cluster, "1.00", day="2026-03-03")
    done = lab.goes_by()
    assert (done.blocked, lab.gpus, lab.states) == (1, 0, ["blocked"])
    assert events() == ["quota.blocked"]
    last = str(mail.outbox[-1].body).replace("\n", " ")
    assert "No new GPU job of its accounts starts" in last
    act = Act.objects.latest("pk")
    assert act.why == "budget monthly of vision: $1,000.00 of $1,000.00 used"
    assert lab.goes_by().blocked == 0


def test_quota_035_no_limit_that_ends_running_jobs_is_ever_written(lab: Lab) -> None:
    a_quota(lab.tenant, action=QuotaAction.NO_SUBMISSIONS)
    before = dict(lab.slurm.world.limits("vision").tres["group.minutes"])
    count = len(lab.slurm.world.associations)
    spend(lab.cluster, "1000.00")
    lab.goes_by()
    assert (lab.gpus, lab.submits) == (0, 0)
    assert lab.slurm.world.limits("vision").tres["group.minutes"] == before
    lab.raise_to("2000", action=QuotaAction.NO_SUBMISSIONS)
    lab.goes_by()
    assert len(lab.slurm.world.associations) == count  # none was deleted, which would cancel its jobs


def test_quota_037_raised_it_is_free_by_itself_with_the_limits_from_before(lab: Lab) -> None:
    a_quota(lab.tenant, **BLOCKS)
    spend(lab.cluster, "1000.00")
    lab.goes_by()
    assert lab.gpus == 0
    lab.raise_to("1500")
    done = lab.goes_by()
    assert (done.lifted, lab.gpus, lab.states) == (1, 8, ["lifted"])
    assert events() == ["quota.blocked", "quota.lifted"]


def test_quota_037_a_new_period_lifts_without_any_usage(lab: Lab) -> None:
    a_quota(lab.tenant, **BLOCKS)
    spend(lab.cluster, "1000.00")
    lab.goes_by()
    lab.now = at("2026-03-31 23:59")
    lab.goes_by(30)
    assert lab.gpus == 0
    lab.goes_by(40)
    assert (lab.gpus, lab.states) == (8, ["lifted"])


def test_quota_010_used_again_below_lifts_and_above_blocks_again(lab: Lab) -> None:
    a_quota(lab.tenant, **BLOCKS)
    job = spend(lab.cluster, "1005.00")
    lab.goes_by()
    spend(lab.cluster, "980.00", job_id=job)
    lab.goes_by()
    assert lab.gpus == 8
    spend(lab.cluster, "30.00", day="2026-03-04")
    lab.goes_by()
    assert (lab.gpus, lab.states) == (0, ["lifted", "blocked"])


def test_quota_023_a_budget_of_nothing_blocks_from_the_first_second_and_none_blocks_never(lab: Lab) -> None:
    a_quota(lab.tenant, amount=Decimal(0), **BLOCKS)
    lab.goes_by()
    assert lab.gpus == 8
    spend(lab.cluster, "0.50")
    lab.goes_by()
    assert lab.gpus == 0


@pytest.mark.parametrize("first", ["quota", "operator"])
def test_quota_036_the_block_stands_until_its_last_reason_is_gone(first: str, lab: Lab) -> None:
    a_quota(lab.tenant, **BLOCKS)

    def by_hand(kind: str) -> None:
        with lab.opens(lab.cluster) as port:
            plan = getattr(enforcement_plan, f"plan_{kind}")(port=port, account="vision")
            job_control.carry_out(port=port, plan=plan, who="op", why="maintenance")

    if first == "operator":
        by_hand("block")
    spend(lab.cluster, "1000.00")
    lab.goes_by()
    if first == "quota":
        by_hand("block")
    lab.raise_to("1500")
    lab.goes_by()
    assert lab.gpus == 0  # the operator's word stands
    by_hand("unblock")
    assert lab.gpus == 8


def test_quota_005_two_budgets_block_one_account_and_each_takes_back_its_own(lab: Lab) -> None:
    a_quota(lab.tenant, **BLOCKS)
    a_quota(lab.tenant, "of-vision", account="vision", amount=Decimal(500), **BLOCKS)
    spend(lab.cluster, "1000.00")
    lab.goes_by()
    assert lab.states == ["blocked", "blocked"]
    lab.raise_to("1500")
    lab.goes_by()
    assert lab.gpus == 0
    lab.raise_to("1200", "of-vision")
    lab.goes_by()
    assert lab.gpus == 8


def test_quota_005_each_budget_counts_the_job_and_the_one_that_blocks_is_named(lab: Lab) -> None:
    project = lab.tenant.projects.get()
    a_quota(lab.tenant, **BLOCKS)
    a_quota(lab.tenant, "of-ben", user="ben", amount=Decimal(100))  # is over as well, and only tells
    a_quota(lab.tenant, "of-the-project", project=project, amount=Decimal(200), **BLOCKS)
    spend(lab.cluster, "250.00", user="ben")
    lab.goes_by()
    used = QuotaPeriod.objects.order_by("quota").values_list("quota__name", "used")
    assert dict(used) == dict.fromkeys(("monthly", "of-ben", "of-the-project"), Decimal(250))
    assert QuotaBlock.objects.get().quota.name == "of-the-project"
    assert Act.objects.get().why == "budget of-the-project of vision: $250.00 of $200.00 used"
    assert lab.gpus == 0
    text = " ".join(str(mail.outbox[-1].body).split())
    assert "No new GPU job of its accounts starts" in text
    assert "Budgets that block: of-the-project." in text


def test_quota_038_a_limit_that_somebody_changed_meanwhile_is_left_as_it_is(lab: Lab) -> None:
    a_quota(lab.tenant, **BLOCKS)
    spend(lab.cluster, "1000.00")
    lab.goes_by()
    lab.slurm.world.limits("vision").tres["total"]["gres/gpu"] = 2
    lab.goes_by()
    assert (lab.gpus, Act.objects.count()) == (2, 1)
    lab.raise_to("1500")
    lab.goes_by()
    assert (lab.gpus, lab.states) == (2, ["lifted"])
    assert Act.objects.latest("pk").why.endswith(
        "; GrpTRES=gres/gpu is 2 and not our 0 any more: it is left as it is."
    )


def test_quota_039_a_scheduler_that_was_away_is_told_what_is_wanted_now_and_nothing_else(lab: Lab) -> None:
    a_quota(lab.tenant, **BLOCKS)
    spend(lab.cluster, "1000.00")
    lab.is_away = True
    for _ in range(5):
        lab.goes_by(1800)
    row = QuotaBlock.objects.get()
    assert (row.state, row.tries > 1, bool(row.error)) == ("requested", True, True)
    lab.raise_to("1500")
    lab.goes_by()
    lab.is_away = False
    lab.goes_by(6 * 3600)
    assert (lab.gpus, lab.states, Act.objects.count()) == (8, ["lifted"], 0)
    assert events() == []
    lab.raise_to("1000")
    lab.goes_by()
    assert lab.gpus == 0


def test_quota_043_what_is_watched_is_written_down_and_not_done(lab: Lab) -> None:
    a_quota(lab.tenant, watch=True, **BLOCKS)
    spend(lab.cluster, "1000.00")
    lab.goes_by()
    assert (lab.gpus, lab.states) == (8, ["watched"])
    assert "only watched" in str(mail.outbox[-1].body)
    lab.raise_to("1000", watch=False)
    lab.goes_by()
    assert (lab.gpus, lab.states) == (0, ["watched", "blocked"])
    assert QuotaBlock.objects.filter(ended_at=None).count() == 1


def test_a_harder_action_follows_when_the_milder_one_is_gone(lab: Lab) -> None:
    a_quota(lab.tenant, **BLOCKS)
    spend(lab.cluster, "1000.00")
    lab.goes_by()
    lab.raise_to("1000", action=QuotaAction.NO_SUBMISSIONS)
    for _ in range(3):
        lab.goes_by()
    assert (lab.gpus, lab.submits, lab.states) == (0, 0, ["lifted", "blocked"])


def test_quota_044_the_operator_lets_all_go_for_a_time_with_a_reason(lab: Lab) -> None:
    a_quota(lab.tenant, **BLOCKS)
    spend(lab.cluster, "1000.00")
    lab.goes_by()
    until = lab.now + timedelta(hours=2)
    blocks.release_quotas(tenant=lab.tenant, until=until, reason="paper deadline", by="op", moment=lab.now)
    lab.goes_by()
    assert lab.gpus == 8
    lab.goes_by(3600)
    assert lab.gpus == 8
    lab.goes_by(3700)
    assert lab.gpus == 0
    with pytest.raises(QuotaError, match="Say why"):
        blocks.release_quotas(
            tenant=lab.tenant, until=until + timedelta(days=1), reason=" ", by="op", moment=lab.now
        )


def test_quota_044_the_command_says_what_follows(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("release_quotas", "vision", "--until", "2199-01-01T00:00:00Z", "--why", "deadline")
    assert "No quota of vision blocks anything until 2199-01-01T00:00:00Z" in capsys.readouterr().out


def test_an_ended_budget_blocks_nothing(lab: Lab) -> None:
    a_quota(lab.tenant, **BLOCKS)
    spend(lab.cluster, "1000.00")
    lab.goes_by()
    quotas.end_quota(tenant=lab.tenant, name="monthly", by=Setter.OPERATOR, moment=lab.now)
    lab.goes_by()
    assert (lab.gpus, lab.states) == (8, ["lifted"])


def test_an_account_that_goes_to_somebody_else_is_free(lab: Lab) -> None:
    a_quota(lab.tenant, **BLOCKS)
    spend(lab.cluster, "1000.00")
    lab.goes_by()
    other = a_tenant("speech", plan=lab.tenant.subscriptions.get().plan)
    lab.tenant.ownerships.update(until=lab.now)
    own(other, lab.cluster, "vision", since=f"{lab.now:%Y-%m-%d %H:%M}")
    lab.goes_by(3700)
    assert (lab.gpus, lab.states) == (8, ["lifted"])


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"user": "ben", **BLOCKS}, "can only notify"),
        ({"gpu_model": "h100", **BLOCKS}, "can only notify"),
        ({"watch": True}, "Only a quota that blocks can be tried first, or watched"),
    ],
)
def test_quota_057_what_cannot_act_so_is_refused(fields: dict[str, Any], sentence: str, lab: Lab) -> None:
    with pytest.raises(QuotaError, match=sentence):
        a_quota(lab.tenant, **fields)


def test_what_a_scheduler_cannot_do_is_tried_again_and_said(lab: Lab) -> None:
    a_quota(lab.tenant, **BLOCKS)
    spend(lab.cluster, "1000.00")

    def none(cluster: Cluster) -> SchedulerPort:
        raise LimitError(f"{cluster} is fed by files.")

    review.review_quotas(moment=lab.now)
    assert blocks.enforce_blocks(moment=lab.now, opens=none).troubles == [
        "gpu1/vision: gpu1 is fed by files."
    ]
    assert QuotaBlock.objects.get().state == QuotaBlockState.REQUESTED
