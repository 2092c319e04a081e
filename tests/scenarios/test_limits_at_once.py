"""What accounts may hold at once: written to the scheduler, read back, beneath blocks too, and given back exactly."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from billing.limits import enforcement, limits, status
from billing.limits.enforcement import LimitTally
from billing.limits.limits import LimitTerms, LimitTermsError
from billing.models import LimitedAccount
from clusters import enforcement_plan, job_control
from clusters.connectors.acts import Ceiling
from clusters.enforcement_plan import SchedulerPort
from clusters.models import AccountLimit, Act, ActKind, ActOutcome, Cluster
from portal.core.audit.models import AuditEntry
from portal.core.tenants.models import Ownership
from tests.builders import a_job, a_plan, a_tenant, at, ingest, own
from tests.configuring_terms import apply, refused
from tests.fakes.kubernetes import StandIn as Kube
from tests.fakes.kubernetes_port import a_port as kube_port
from tests.fakes.kubernetes_port import a_world as kube_world
from tests.fakes.kubernetes_port import connected
from tests.fakes.scheduler_port import a_world
from tests.fakes.slurm_world import Association
from tests.fakes.slurmrestd import StandIn
from tests.quota_stories import a_quota, spend
from tests.scenarios.configuring import run
from tests.scenarios.real import run as data_of
from tests.scenarios.test_quotas_block import BLOCKS, Lab
from tests.tiers import whole_or

pytestmark = pytest.mark.django_db(transaction=True)


class LimitLab(Lab):
    """Vision's account has GrpTRES=gres/gpu=8 and GrpJobs=40 of its own before anything is limited."""

    def limit(self, name: str = "once", **said: object) -> None:
        limits.set_limit(tenant=self.tenant, name=name, terms=LimitTerms(**said), moment=self.now)  # type: ignore[arg-type]

    def end(self, name: str = "once") -> bool:
        return limits.end_limit(tenant=self.tenant, name=name, moment=self.now)

    def enforces(self, seconds: int = 60) -> LimitTally:
        self.now += timedelta(seconds=seconds)
        return enforcement.enforce_limits(moment=self.now, opens=self.opens)

    @property
    def held(self) -> tuple[int | None, int | None, int | None]:
        """GPUs, GPUs of h100, and jobs, as Slurm has them."""
        row = self.slurm.world.limits("vision")
        total = row.tres.get("total", {})
        return total.get("gres/gpu"), total.get("gres/gpu:h100"), row.jobs.get("per.count")


@pytest.fixture
def lab() -> Iterator[LimitLab]:
    with StandIn(44, world=a_world()) as slurm:
        yield LimitLab(slurm)


def test_16_h100_and_30_jobs_are_written_read_back_and_given_back(lab: LimitLab) -> None:
    before = (lab.slurm.world.limits("vision").tres["group.minutes"].copy(), lab.held)
    lab.limit(gpus=16, gpu_model="h100", jobs=30)
    lab.limit("others", jobs=20)
    done = lab.enforces()
    assert (done.set, done.troubles, lab.held) == (1, [], (8, 16, 20))  # of two limits the smaller
    sent = Act.objects.count()
    assert lab.enforces(4000).set == 0  # read once more, and nothing is sent
    assert Act.objects.count() == sent
    act = Act.objects.filter(kind=ActKind.LIMIT).order_by("pk")[0]
    assert (act.before.get("GrpTRES=gres/gpu:h100"), act.after["GrpTRES=gres/gpu:h100"]) == (None, 16)  # type: ignore[index]

    assert lab.end("others")
    lab.enforces()
    assert lab.held == (8, 16, 30)
    assert lab.end()
    assert not lab.end()
    assert lab.enforces().lifted == 1
    assert (lab.slurm.world.limits("vision").tres["group.minutes"], lab.held) == before
    assert not AccountLimit.objects.filter(ended_at=None).exists()
    assert AuditEntry.objects.filter(table="billing_concurrencylimit").count() == 4


def test_a_limit_that_changes_while_the_account_is_blocked_takes_effect_when_the_block_goes(
    lab: LimitLab,
) -> None:
    lab.limit(gpus=16)
    lab.enforces()
    a_quota(lab.tenant, **BLOCKS)
    spend(lab.cluster, "1000.00")
    lab.goes_by()
    assert lab.held == (0, None, 40)
    lab.limit(gpus=4, jobs=10)
    assert lab.enforces().troubles == []
    assert lab.held == (0, None, 10)  # it stays blocked; what no block hides holds at once
    lab.raise_to("2000")
    lab.goes_by()
    assert lab.held == (4, None, 10)  # the present limit, not the one from before

    spend(lab.cluster, "1000.00", day="2026-03-03")
    lab.goes_by()
    assert lab.end()
    assert lab.enforces().lifted == 1
    assert lab.held == (0, None, 40)
    lab.raise_to("3000")
    lab.goes_by()
    assert lab.held == (8, None, 40)  # as before any of it

    lab.raise_to("2000")
    lab.goes_by()
    lab.limit(gpus=2)  # set while the account is blocked, and ended again
    lab.enforces()
    lab.end()
    lab.enforces()
    lab.raise_to("3000")
    lab.goes_by()
    assert lab.held == (8, None, 40)


def test_quota_038_what_somebody_changes_by_hand_is_told_and_not_fought_over(lab: LimitLab) -> None:
    lab.limit(gpus=16)
    lab.enforces()
    lab.slurm.world.limits("vision").tres["total"]["gres/gpu"] = 32
    lab.enforces(4000)
    assert LimitedAccount.objects.get().note.startswith("GrpTRES=gres/gpu is 32 and not our 16 any more.")
    assert lab.held[0] == 32
    lab.limit(gpus=24)  # whoever asks for another one has it
    lab.enforces()
    assert lab.held[0] == 24
    lab.slurm.world.limits("vision").tres["total"]["gres/gpu"] = 32
    lab.end()
    lab.enforces()
    assert lab.held[0] == 32


def test_a_new_limit_is_written_before_accounts_are_read_again(
    lab: LimitLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enforcement, "AT_ONCE", 2)
    own(lab.tenant, lab.cluster, "speech")
    world = lab.slurm.world.associations
    world += [Association(10 + number, f"team{number}", parent="acme") for number in range(4)]
    teams = a_tenant(
        "teams", plan=a_plan("other"), accounts=[(lab.cluster, f"team{number}") for number in range(4)]
    )
    limits.set_limit(tenant=teams, name="once", terms=LimitTerms(gpus=2), moment=lab.now)
    for _ in range(2):
        lab.enforces()
    lab.now += timedelta(hours=2)  # all four are to be read again
    lab.limit(gpus=3, account="vision")
    assert lab.enforces().set == 1
    assert lab.held[0] == 3
    checked = LimitedAccount.objects.filter(checked_at=lab.now).values_list("account__name", flat=True)
    assert sorted(checked) == ["team0", "vision"]  # and one that has waited longest


def test_a_scheduler_that_cannot_be_reached_or_does_not_obey_is_tried_again(lab: LimitLab) -> None:
    lab.is_away = True
    lab.limit(gpus=16)
    assert len(lab.enforces().troubles) == 1
    assert lab.enforces().troubles == []  # not at once
    lab.limit(gpus=12)
    lab.is_away = False
    lab.slurm.world.deaf = True
    (trouble,) = lab.enforces(300).troubles
    assert "gpu1/vision" in trouble
    assert (lab.held[0], Act.objects.latest("pk").outcome) == (8, ActOutcome.FAILED)
    assert not AccountLimit.objects.filter(ended_at=None).exists()
    lab.slurm.world.deaf = False
    assert lab.enforces(3600).set == 1
    assert lab.held[0] == 12  # what is wanted now


def test_a_worker_that_is_killed_before_the_answer_leaves_an_act_that_is_settled_by_looking(
    lab: LimitLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.limit(gpus=16)
    monkeypatch.setattr("clusters.job_control._end", killed)
    with pytest.raises(KeyboardInterrupt):
        lab.enforces()
    assert lab.held[0] == 16
    assert Act.objects.get().outcome == ActOutcome.INTENDED
    monkeypatch.undo()
    assert lab.enforces().set == 1
    assert (Act.objects.get().outcome, lab.held[0]) == (ActOutcome.DONE, 16)
    lab.end()
    lab.enforces()
    assert lab.held[0] == 8


def hard(kube: Kube) -> dict[str, str] | None:
    """Of our ResourceQuota in the namespace batch; None where there is none."""
    try:
        amounts: dict[str, str] = kube.spec("resourcequotas", "batch", "clustertab-block")["hard"]
    except KeyError:
        return None
    return amounts


def killed(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_quota_042_an_account_above_somebody_elses_is_not_limited_and_op_is_told(lab: LimitLab) -> None:
    own(lab.tenant, lab.cluster, "acme")
    a_tenant("speech", plan=a_plan("other"), accounts=[(lab.cluster, "speech")])
    lab.limit(gpus=16, account="acme")
    (trouble,) = lab.enforces().troubles
    assert "Below acme lies speech of speech, which a limit would hold, too" in trouble


def test_shards_have_a_limit_of_their_own_and_are_held_as_parts_of_gpus(lab: LimitLab) -> None:
    lab.cluster.shares = {"a100": {"shard": "1/4"}, "h100": {"shard@gpu[1-2]": "1/8"}}
    lab.cluster.save()
    run = {"started": "2026-03-05 10:00", "ended": None, "seen_until": "2026-03-05 11:00"}
    ingest(
        lab.cluster,
        a_job(**run, gpus=1),
        a_job(**run, gpus=6, gpu_share=(1, 4)),
        a_job(**run, gpus=2, gpu_share=(1, 7), mig_profile="1g.5gb"),
    )
    lab.limit(gpus=5)
    assert lab.enforces().troubles == []
    assert lab.slurm.world.limits("vision").tres["total"] == {"cpu": 512, "gres/gpu": 5, "gres/shard": 20}
    (row,) = status.load_statuses(list(limits.list_limits()), moment=lab.now)
    (account,) = row.accounts
    # A GPU, 6 shards of which four are one, and two slices, each of which Slurm counts as a GPU: 4.5, rounded up.
    assert status.held_text(row.limit, account) == "5 of 5 GPUs"
    assert "beside 5 GPUs, 20 shards can be held" in account.note
    lab.limit(gpus=5, gpu_model="h100")
    lab.enforces()
    assert lab.slurm.world.limits("vision").tres["total"] == {"cpu": 512, "gres/gpu": 8, "gres/gpu:h100": 5}
    assert "a limit of one model does not hold them" in LimitedAccount.objects.get().note
    lab.end()
    lab.enforces()
    assert lab.slurm.world.limits("vision").tres["total"] == {"cpu": 512, "gres/gpu": 8}


def test_commands_say_what_is_held_of_it_and_a_file_sets_it(lab: LimitLab) -> None:
    fact = a_job(
        started="2026-03-05 10:00", ended=None, seen_until="2026-03-05 11:00", gpus=6, gpu_model="h100"
    )
    ingest(lab.cluster, fact)
    set_words = ("set_limit", "vision", "once", "--gpus", "16", "--gpu-model", "h100", "--jobs", "40")
    assert data_of(*set_words)["accounts"][0]["state"] == "requested"
    lab.now = at("2027-01-01")
    lab.enforces()
    (one,) = data_of("show_limits")["limits"]
    (account,) = one["accounts"]
    assert (one["gpus"], one["jobs"], one["gpu_model"]) == (16, 40, "h100")
    assert (account["account"], account["gpus"], account["jobs"], account["state"]) == ("vision", 6, 1, "set")
    (row,) = status.load_statuses(list(limits.list_limits()), moment=lab.now)
    assert status.held_text(row.limit, row.accounts[0]) == "6 of 16 GPUs, 1 of 40 jobs"
    assert data_of("set_limit", "vision", "once", "--end")["ended"] is True
    file = '[[tenant]]\nslug = "vision"\nname = "Vision"\n[[tenant.limit]]\nname = "file"\ngpus = 2\n'
    assert apply(file)[0] == "limit file of vision: new (gpus 2)"
    assert apply(file) == ["Nothing to change."]
    assert "limit" in refused(file + "gpu = 2\n")[0]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({}, "how many GPUs or how many jobs"),
        ({"gpus": 0}, "From 1 to"),
        ({"jobs": 10**7}, "From 1 to"),
        ({"jobs": 4, "gpu_model": "h100"}, "narrows a number of GPUs"),
        ({"gpus": 4, "gpu_model": "h100,a100"}, "without commas"),
        ({"gpus": 4, "cluster": "nowhere"}, "There is no cluster"),
    ],
)
def test_what_cannot_be_limited_is_refused(lab: LimitLab, said: dict[str, Any], words: str) -> None:
    with pytest.raises(LimitTermsError, match=words):
        lab.limit(**said)
    with pytest.raises(LimitTermsError, match="Name a limit"):
        lab.limit("Once!", gpus=1)


def test_quota_054_kubernetes_holds_it_by_our_resource_quota_beneath_a_block_too() -> None:
    with Kube() as kube:
        kube_world(kube)
        cluster = connected(kube)
        tenant = a_tenant("batch", plan=a_plan(), accounts=[(cluster, "batch")])
        now = at("2026-03-05 12:00")

        def limit(**said: int) -> None:
            limits.set_limit(tenant=tenant, name="once", terms=LimitTerms(**said), moment=now)  # type: ignore[arg-type]

        def enforces(seconds: int) -> LimitTally:
            return enforcement.enforce_limits(moment=now + timedelta(seconds=seconds), opens=opens)

        def opens(one: Cluster) -> SchedulerPort:
            return kube_port(one)

        limit(gpus=16, jobs=40)
        assert enforces(1).troubles == []
        gpus, slices = "requests.nvidia.com/gpu", "requests.nvidia.com/mig-1g.5gb"
        assert hard(kube) == {gpus: "16", "pods": "40"}
        run("block_account", "kube", "batch", "--yes")
        assert hard(kube) == {gpus: "0", slices: "0", "pods": "40"}
        limit(gpus=4)
        assert enforces(2).troubles == []
        assert hard(kube) == {gpus: "0", slices: "0"}
        run("unblock_account", "kube", "batch", "--yes")
        assert hard(kube) == {gpus: "4"}
        limits.end_limit(tenant=tenant, name="once", moment=now)
        assert enforces(3).lifted == 1
        assert hard(kube) is None


@pytest.mark.swept
def test_limits_and_reasons_of_blocks_in_whatever_order_give_back_what_was_before(lab: LimitLab) -> None:
    """Whoever blocks, limits and lets go in between: blocked it has 0, free the present limit, and 8 without one."""
    sources, chance = ("dunning", "quota:1", "operator"), random.Random(20260305)
    with lab.opens(lab.cluster) as port:
        for _story in range(whole_or(3, 12)):
            standing: set[str] = set()
            limit: int | None = None
            for _turn in range(12):
                source = chance.choice((*sources, "limit", "limit"))
                if source == "limit":
                    limit = chance.choice((None, 4, 8, 16))
                    ceiling = None if limit is None else Ceiling(gpus={"": limit})
                    plan = enforcement_plan.plan_limit(port=port, account="vision", ceiling=ceiling)
                elif source in standing:
                    standing.remove(source)
                    plan = enforcement_plan.plan_unblock(port=port, account="vision", source=source)
                else:
                    standing.add(source)
                    plan = enforcement_plan.plan_block(port=port, account="vision", source=source)
                assert job_control.carry_out(port=port, plan=plan, who=source).good
                assert lab.held[0] == (0 if standing else limit or 8)
            for source in sorted(standing):
                plan = enforcement_plan.plan_unblock(port=port, account="vision", source=source)
                job_control.carry_out(port=port, plan=plan, who=source)
            plan = enforcement_plan.plan_limit(port=port, account="vision", ceiling=None)
            job_control.carry_out(port=port, plan=plan, who="limits")
            assert (lab.held, AccountLimit.objects.filter(ended_at=None).count()) == ((8, None, 40), 0)


def test_a_limited_account_that_moves_has_the_limits_of_whom_it_moves_to(lab: LimitLab) -> None:
    speech = a_tenant("speech", plan=a_plan("other"), accounts=[])
    lab.limit(gpus=16)
    limits.set_limit(tenant=speech, name="own", terms=LimitTerms(gpus=3), moment=lab.now)
    lab.enforces()
    assert lab.held[0] == 16
    Ownership.objects.filter(tenant=lab.tenant).update(until=lab.now)
    own(speech, lab.cluster, "vision", since=f"{lab.now:%Y-%m-%d %H:%M}")
    lab.enforces()
    assert lab.held[0] == 3
    limits.end_limit(tenant=speech, name="own", moment=lab.now)
    assert lab.enforces().lifted == 1
    assert lab.held[0] == 8
