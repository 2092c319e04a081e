"""A pool that projects of a tenant borrow from once their own budgets are used: what is lent, and to whom."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from msgspec import structs

from billing.admission.check import check_job
from billing.admission.reserve import reserve_job
from billing.admission.wording import answer_text
from billing.models import QuotaAction, QuotaEvery, QuotaPeriod
from billing.quotas import quotas, status
from billing.quotas.proof import prove_quotas
from billing.quotas.quotas import Setter
from billing.quotas.status import QuotaStatus
from billing.quotas.terms import QuotaError, QuotaTerms
from tests.builders import a_job, a_person, at, own
from tests.documentation import table
from tests.fakes.scheduler_port import a_world
from tests.fakes.slurm_world import Association
from tests.fakes.slurmrestd import StandIn
from tests.quota_stories import a_quota, spend, subjects
from tests.scenarios.test_commands_wallets import answer_of, applied
from tests.scenarios.test_quotas_block import Lab
from tests.web.house import page
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db(transaction=True)

OWN: dict[str, Any] = {"amount": Decimal(300), "action": QuotaAction.NO_GPU_JOBS}


class PoolLab(Lab):
    """Projects nlp (account vision) and speech have 300.00 each, and the tenant a pool of 200.00."""

    def __init__(self, slurm: StandIn) -> None:
        super().__init__(slurm)
        slurm.world.associations.append(
            Association(9, "speech2", parent="acme", tres={"total": {"gres/gpu": 8}})
        )
        self.tenant.ownerships.all().delete()
        for account, project in (("vision", "nlp"), ("speech2", "speech")):
            own(self.tenant, self.cluster, account, project=project)
        self.pool = a_quota(self.tenant, "shared", amount=Decimal(200), lends=True)
        self.nlp, self.speech = (
            a_quota(
                self.tenant, name, project=self.tenant.projects.get(name=name), borrows_from=self.pool, **OWN
            )
            for name in ("nlp", "speech")
        )

    def spends(self, project: str, dollars: str, day: str = "2026-03-02") -> str:
        account = {"nlp": "vision", "speech": "speech2"}[project]
        return spend(self.cluster, dollars, day, account=account)

    def stand(self, name: str) -> QuotaStatus:
        return next(one for one in self.stands() if one.quota.name == name)

    def stands(self) -> list[QuotaStatus]:
        return status.load_statuses(list(quotas.list_quotas(self.tenant)), moment=self.now)

    def blocked(self) -> dict[str, int | None]:
        limits = {name: self.slurm.world.limits(name).tres.get("total", {}) for name in ("vision", "speech2")}
        return {name: one.get("gres/gpu") for name, one in limits.items()}

    def row(self) -> list[str]:
        """As the table of the page has it."""
        nlp, speech, shared = (self.stand(name) for name in ("nlp", "speech", "shared"))
        amounts = (nlp.figure.used, nlp.borrows, speech.figure.used, speech.borrows, shared.left)
        stopped = ", ".join(
            name for name, gpus in zip(("nlp", "speech"), self.blocked().values(), strict=True) if not gpus
        )
        return [*(nlp.text(amount) for amount in amounts), stopped]

    def proved(self) -> list[str]:
        return list(prove_quotas(moment=self.now).broken)


def whole(*amounts: Fraction | int) -> list[int]:
    """Exact, in whole dollars."""
    assert all(amount == int(amount) for amount in amounts), amounts
    return [int(amount) for amount in amounts]


def loans(one: QuotaStatus) -> dict[str, int]:
    return {loan.project: whole(loan.used)[0] for loan in one.figure.loans}


@pytest.fixture
def lab(settings: Any) -> Iterator[PoolLab]:
    settings.CLUSTERTAB_SENDS_MAIL = True
    with StandIn(44, world=a_world()) as slurm:
        yield PoolLab(slurm)


def test_quota_062_a_project_spends_its_own_then_the_pool_and_stops_when_both_are_empty(lab: PoolLab) -> None:
    lab.spends("nlp", "250.00")
    lab.goes_by()
    rows = [lab.row()]
    job = lab.spends("nlp", "100.00", day="2026-03-03")  # 50.00 of it from each
    lab.goes_by()
    rows.append(lab.row())
    nlp, speech = lab.stand("nlp"), lab.stand("speech")
    assert whole(nlp.borrows, nlp.left, speech.left, lab.blocked()["vision"] or 0) == [50, 150, 450, 8]
    shared = lab.stand("shared")
    assert whole(shared.figure.used, shared.left, shared.figure.counted_on) == [50, 150, 0]
    assert loans(shared) == {"nlp": 50, "speech": 0}
    assert [subject for subject in subjects() if "nlp" in subject]  # its own is used up: told, not stopped
    lab.spends("nlp", "149.00", day="2026-03-04")
    lab.goes_by()
    assert lab.blocked() == {"vision": 8, "speech2": 8}
    lab.spends("nlp", "1.00", day="2026-03-05")
    lab.goes_by()
    rows.append(lab.row())
    assert lab.blocked() == {"vision": 0, "speech2": 8}  # the other has its own 300.00 yet
    assert whole(lab.stand("speech").left, lab.stand("shared").left) == [300, 0]
    lab.spends("speech", "299.00", day="2026-03-05")
    lab.goes_by()
    assert lab.blocked()["speech2"] == 8
    lab.spends("speech", "5.00", day="2026-03-05")  # what ran may go below zero, and no more starts
    lab.goes_by()
    rows.append(lab.row())
    assert lab.blocked() == {"vision": 0, "speech2": 0}
    assert whole(lab.stand("shared").left, lab.stand("shared").figure.used) == [-4, 204]
    assert lab.proved() == []
    # 60.00 of nlp's prove to be none: the pool has them again, for both.
    spend(lab.cluster, "40.00", "2026-03-03", account="vision", job_id=job)
    lab.goes_by()
    rows.append(lab.row())
    assert [[*row.values()][1:] for row in table("explanation/quotas.md", "Pools")] == rows
    assert lab.blocked() == {"vision": 8, "speech2": 8}
    assert loans(lab.stand("shared")) == {"nlp": 140, "speech": 4}
    assert lab.proved() == []
    lab.now = at("2026-04-01 00:01")
    lab.goes_by()
    assert whole(*(one.left for one in lab.stands())) == [500, 200, 500]
    QuotaPeriod.objects.filter(quota=lab.pool, start=at("2026-04-01")).update(used=Decimal("0.01"))
    assert lab.proved() == ["vision/shared: 0.01 lent, 0 used beyond their own by those who borrow"]


def test_quota_062_two_projects_that_reach_for_the_last_of_the_pool_at_once_get_it_once(lab: PoolLab) -> None:
    """Left are 10.00 of the pool: the first reservation holds them, and the second is told so."""
    lab.spends("nlp", "490.00")
    lab.spends("speech", "300.00")
    lab.goes_by()
    start = "2026-03-05 12:01"
    placed = []
    for account in ("vision", "speech2"):
        job = a_job(account=account, gpus=5, started=start, ended="2026-03-05 13:01")  # 10.00
        placed.append(reserve_job(cluster=lab.cluster, key=account, job=job, now=lab.now))
    first, second = placed
    assert first is not None
    assert second is not None
    assert (first.reservation is not None, second.reservation) == (True, None)
    assert second.check is not None
    assert "up to $0.00 more of pool shared, $0.00 left; this job needs up to $10.00." in answer_text(
        second.check
    )
    shared = lab.stand("shared")
    assert whole(shared.figure.used, shared.figure.reserved, shared.left) == [190, 10, 0]
    lab.goes_by()
    assert lab.blocked() == {"vision": 8, "speech2": 8}  # what is reserved is not used yet


def test_quota_062_what_a_job_needs_comes_from_its_own_first(lab: PoolLab) -> None:
    lab.spends("nlp", "260.00")
    lab.goes_by()
    job = a_job(gpus=8, started="2026-03-05 12:01", ended="2026-03-05 18:01")  # 96.00
    (need,) = check_job(tenant=lab.tenant, cluster="gpu1", job=job, now=lab.now).needs
    assert (need.fits, whole(need.amount, need.borrows)) == (True, [96, 56])
    later = (job.ended or 0) + 10 * 3600
    longer = structs.replace(job, ended=later, seen_until=later)  # 256.00
    (need,) = check_job(tenant=lab.tenant, cluster="gpu1", job=longer, now=lab.now).needs
    assert (need.fits, need.longest) == (False, 15 * 3600)  # 240.00


def test_quota_062_file_command_page_and_api_set_and_show_it_alike(tmp_path: Any, lab: PoolLab) -> None:
    file = """
[[tenant]]
slug = "vision"
name = "Vision"
[[tenant.quota]]
name = "hours-nlp"
measure = "gpu-hours"
amount = "300"
every = "term"
from = 2026-01-01
until = 2036-01-01
project = "nlp"
borrows_from = "hours"
[[tenant.quota]]
name = "hours"
measure = "gpu-hours"
amount = "200"
every = "term"
from = 2026-01-01
until = 2036-01-01
lends = true
"""
    assert applied(tmp_path, file)["changed"]
    assert not applied(tmp_path, file)["changed"]
    lab.spends("nlp", "700.00")  # 350 GPU-hours
    words_of_command = (
        "set_quota vision hours-speech --amount 300 --measure gpu-hours --every term --from 2026-01-01 "
        "--until 2036-01-01 --project speech --borrows-from hours"
    )
    row = answer_of(*words_of_command.split())
    assert (row["borrows_from"], row["borrowed"], row["left"]) == ("hours", "0", "450")
    listed = {one["name"]: one for one in answer_of("show_quotas", "--tenant", "vision")["quotas"]}
    assert listed["hours"]["loans"] == [
        {"quota": "hours-nlp", "project": "nlp", "used": "50"},
        {"quota": "hours-speech", "project": "speech", "used": "0"},
    ]
    ann = a_person("ann@vision.example", lab.tenant)
    text = words(page(ann, "/t/vision/budgets/"))
    assert "50 GPU-hours borrowed from hours, 150 GPU-hours left there" in text
    assert "nlp: 50 GPU-hours, speech: 0 GPU-hours" in text
    assert "A pool: counts what its projects used beyond their own budgets." in text
    answer = page(ann, "/t/vision/budgets/?edit=hours-nlp")
    assert 'value="hours"' in answer


def test_quota_062_a_pool_that_cannot_be_is_a_sentence(lab: PoolLab) -> None:
    plain = QuotaTerms.of(lab.nlp)
    pool = QuotaTerms.of(lab.pool)
    other = a_quota(lab.tenant, "yearly", amount=Decimal(200), every=QuotaEvery.YEAR, lends=True)
    for name, terms, refusal in (
        (
            "nlp",
            replace(plain, user="ben", action=QuotaAction.NOTIFY),
            "A quota that borrows is of one whole project",
        ),
        ("nlp", replace(plain, carry_over=20), "carry nothing over"),
        ("nlp", replace(plain, borrows_from=other), "yearly counts something else, or other periods"),
        ("nlp", replace(plain, borrows_from=lab.speech), "has no pool 'speech'"),
        ("nlp-2", plain, "nlp of the same project borrows from shared already"),
        ("shared", replace(pool, lends=False), "nlp, speech borrow from shared"),
        ("shared", replace(pool, every=QuotaEvery.YEAR), "nlp, speech borrow from shared"),
        ("shared", replace(pool, project=plain.project), "it has no scope, only notifies"),
        ("shared", replace(pool, action=QuotaAction.NO_GPU_JOBS), "it has no scope, only notifies"),
    ):
        with pytest.raises(QuotaError, match=refusal):
            quotas.set_quota(tenant=lab.tenant, name=name, terms=terms, by=Setter.OPERATOR, moment=lab.now)
    with pytest.raises(QuotaError, match="nlp, speech borrow from shared"):
        quotas.end_quota(tenant=lab.tenant, name="shared", by=Setter.OPERATOR, moment=lab.now)
    lab.raise_to("250", name="shared")
    assert whole(lab.stand("nlp").left) == [550]
