"""Ben sees what his job costs in `squeue`: written every half an hour, beside what others write there."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from billing.job_prices import run
from billing.job_prices.comment import with_part, written_at
from billing.models import QuotaEvery
from clusters.connectors.acts import ActRefusedError, NotStuckError
from clusters.connectors.slurm.comments import JobComment, SlurmComments
from clusters.job_prices import set_job_prices
from clusters.models import Cluster, ClusterKind, Connection, UsageRecord
from tests.builders import LONG_AGO, a_cluster, a_job, a_plan, a_tenant, at, ingest, own
from tests.quota_stories import a_quota, spend

pytestmark = pytest.mark.django_db
NOON = at("2026-03-05 12:00")
FEW = 45  # jobs


class Comments(SlurmComments):
    """The comments of a scheduler by the key of its jobs; `writes` counts."""

    def __init__(self, texts: dict[str, str]) -> None:
        self.texts, self.writes, self.refuses = texts, 0, False
        self.contested = ""  # the key of a job whose comment somebody else writes, too

    def close(self) -> None:
        pass

    def read_all(self) -> list[JobComment]:
        keys = [key.partition("@") for key in self.texts]
        return [JobComment(int(job), int(at), self.texts[f"{job}@{at}"]) for job, _, at in keys]

    def write(self, job: JobComment, edit: Callable[[str], str]) -> bool:
        if self.refuses:
            raise ActRefusedError("slurm-comments-refused", retry=False, user="clustertab")
        if job.key == self.contested:
            raise NotStuckError("slurm-comment-without-effect", retry=False, job=job.id)
        text, self.texts[job.key] = self.texts[job.key], edit(self.texts[job.key])
        self.writes += text != self.texts[job.key]
        return text != self.texts[job.key]


class Scene:
    def __init__(self) -> None:
        self.cluster = a_cluster(kind=ClusterKind.SLURM, complete_through="2026-03-05 12:00")
        Connection.objects.create(
            cluster=self.cluster,
            base_url="http://slurm.test",
            user="clustertab",
            first_usage_from=at("2026-01-01"),
        )
        plan = a_plan(charges=["gpu"], prices=[("gpu-hour", {}, "2.00", LONG_AGO)])
        self.tenant = a_tenant("vision", plan=plan, accounts=[(self.cluster, "vision")])
        ends: dict[str, Any] = {"ended": None, "state": "RUNNING", "seen_until": int(NOON.timestamp())}
        jobs = [
            a_job(job_id=str(n), user="ben", gpus=4, started="2026-03-05 10:00", time_limit=6 * 3600, **ends)
            for n in range(1, FEW + 1)
        ]
        ingest(self.cluster, *jobs, a_job(job_id="99", account="nobody", started="2026-03-05 10:00", **ends))
        self.comments = Comments(dict.fromkeys(UsageRecord.objects.values_list("source_key", flat=True), ""))
        self.rests: list[int] = []

    def passes(self, minutes: int = 0) -> run.PriceTally:
        return run.write_job_prices(
            cluster=Cluster.objects.get(),
            moment=NOON + timedelta(minutes=minutes),
            opens=lambda _: self.comments,
            rests=self.rests.append,
        )


def test_each_job_says_what_it_costs_and_what_is_left_every_half_an_hour() -> None:
    scene = Scene()
    a_quota(scene.tenant, amount=Decimal("2000.00"), name="monthly")
    a_quota(scene.tenant, amount=Decimal("900.00"), name="of-ben", user="ben")
    a_quota(scene.tenant, amount=Decimal("10.00"), name="of-carl", user="carl")
    texts = scene.comments.texts
    first, foreign = list(texts)[:2]
    texts[foreign] = "ticket 42 [open]"
    assert scene.passes() == run.PriceTally(FEW, "")
    part = "[ClusterTab 2026-03-05 12:00 UTC: $16.00 so far, $48.00 at its time limit; budget of-ben: $180.00 left]"
    assert (texts[first], texts[foreign]) == (part, f"ticket 42 [open] {part}")
    assert min(texts.values()) == ""  # of an account without an owner
    assert scene.rests == [50] * FEW
    assert [scene.passes(minutes).written for minutes in (0, 5, 29, 30, 35)] == [0, 0, 0, FEW, 0]
    texts[foreign] = f"closed; {texts[foreign]}; by op"
    scene.passes(60)
    assert texts[foreign].startswith("closed; ticket 42 [open] [ClusterTab 2026-03-05 13:00 UTC: ")
    assert texts[foreign].endswith(" left]; by op")
    assert texts[foreign].count("ClusterTab") == 1


def test_what_is_left_is_said_of_a_budget_that_counts_the_job_now() -> None:
    scene = Scene()
    a_quota(scene.tenant, amount=Decimal("9000.00"), name="monthly")
    term: dict[str, Any] = {
        "every": QuotaEvery.TERM,
        "first_day": date(2026, 1, 1),
        "end_day": date(2026, 2, 1),
    }
    a_quota(scene.tenant, amount=Decimal("5.00"), name="past", **term)
    spend(scene.cluster, "5.00", "2026-01-05", account="vision")
    pool = a_quota(scene.tenant, amount=Decimal("100.00"), name="pool", lends=True)
    project = scene.tenant.ownerships.get().project
    a_quota(scene.tenant, amount=Decimal("1.00"), name="of-vision", project=project, borrows_from=pool)
    own(scene.tenant, scene.cluster, "speech", project="speech")
    ends: dict[str, Any] = {"ended": None, "state": "RUNNING", "seen_until": int(NOON.timestamp())}
    ingest(scene.cluster, a_job(job_id="200", account="speech", started="2026-03-05 10:00", **ends))
    key = UsageRecord.objects.get(job_id="200").source_key
    scene.comments.texts[key] = ""
    scene.passes()
    texts = scene.comments.texts
    budgets = {
        text.partition("budget ")[2].partition(":")[0] for one, text in texts.items() if text and one != key
    }
    assert budgets == {"of-vision"}
    assert "budget monthly: " in texts[key]  # of the pool its project borrows nothing


def test_what_hinders_is_kept_and_tried_again_after_half_an_hour() -> None:
    scene = Scene()
    assert list(run.list_due(moment=NOON)) == []  # off by default
    assert [set_job_prices(cluster=scene.cluster, on=True) for _ in range(2)] == [True, False]
    assert list(run.list_due(moment=NOON)) == [scene.cluster]
    scene.comments.refuses = True
    assert "adminlevel=Administrator" in scene.passes().error
    assert "adminlevel=Administrator" in Connection.objects.get().job_prices_error
    due = [bool(run.list_due(moment=NOON + timedelta(minutes=minutes))) for minutes in (0, 29, 30)]
    assert due == [False, False, True]
    scene.comments.refuses = False
    assert scene.passes(30) == run.PriceTally(FEW, "")
    assert run.list_due(moment=NOON + timedelta(minutes=35)).exists()


def test_a_job_whose_comment_somebody_else_writes_keeps_no_other_without_its_price() -> None:
    scene = Scene()
    comments = scene.comments
    comments.contested = next(key for key in comments.texts if key.startswith("1@"))
    done = scene.passes()
    assert done.written == FEW - 1
    assert "somebody else may write it, too" in done.error
    assert scene.passes(30).written == FEW - 1


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("a [ClusterTab 2026-03-05 12:00 UTC: $1.00 so far] b", NOON),
        ("[ClusterTab 2026-13-05 12:00 UTC: x]", None),
        ("[ClusterTab soon]", None),
        ("", None),
    ],
)
def test_our_part_says_when_it_was_written(text: str, moment: datetime | None) -> None:
    assert written_at(text) == moment
    edited = with_part(text, "new] [x", moment=NOON)
    assert edited.count("[ClusterTab 2026-03-05 12:00 UTC: new x]") == 1
    assert written_at(edited) == NOON or moment is None
