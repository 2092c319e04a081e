"""Kill -9 while what is old is erased: the next call erases the rest, the history counts all of it, every sum stays."""

from __future__ import annotations

import random

import pytest
from django.db.models import Sum

from billing.models import Erasure, InvoiceDocument, RatedJob
from portal.core.outbox.models import OutboxMessage
from tests.builders import a_cluster, a_job, a_plan, a_tenant, at, ingest
from tests.integration.operators import Operator
from tests.stories import close, prove

pytestmark = pytest.mark.usefixtures("transactional_db")

LABS, USERS, MESSAGES = 3, 120, 12_000  # three slices of each
KILLS = 6
ERASE = ("erase_old", "--why", "Yearly", "--yes")


def erased() -> dict[str, int]:
    rows = Erasure.objects.order_by().values_list("kind").annotate(Sum("rows"))
    return {kind: int(count) for kind, count in rows}


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 10))])
def test_each_name_and_row_is_erased_and_counted_once_however_often_it_is_killed(
    seed: int, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETENTION_YEARS", "job-users=1,outbox=1")
    dice, cluster, day = random.Random(seed), a_cluster(), at("2024-03-02")
    labs = [
        a_tenant(f"lab-{lab}", plan=a_plan(f"plan-{lab}"), accounts=[(cluster, f"lab-{lab}")])
        for lab in range(LABS)
    ]
    hours = {"started": "2024-03-02 10:00", "ended": "2024-03-02 11:00"}
    jobs = [
        a_job(job_id=f"{lab.slug}-{user}", account=lab.slug, user=f"person-{user}", **hours)
        for lab in labs
        for user in range(USERS)
    ]
    ingest(cluster, *jobs, as_of="2024-05-01")
    close("2024-03", on="2024-05-01", now="2024-05-01")
    done = {"task": "tests.x", "kwargs": {}, "created_at": day, "available_at": day, "done_at": day}
    OutboxMessage.objects.bulk_create([OutboxMessage(**done) for _ in range(MESSAGES)])
    sums, documents = prove(), list(InvoiceDocument.objects.order_by("pk").values_list("sha256", flat=True))
    killed = 0
    with Operator(database_url) as op:
        for _kill in range(KILLS):
            before = sum(erased().values())
            killed += op.is_killed_doing(
                *ERASE, count=lambda: sum(erased().values()), at=before + 1, after=dice.uniform(0, 0.1)
            )
        op.does(*ERASE)
    assert killed >= 2
    assert erased() == {"job-users": LABS * USERS, "outbox": MESSAGES}
    assert not OutboxMessage.objects.filter(task="tests.x").exists()
    assert not RatedJob.objects.filter(user__startswith="person-").exists()
    assert prove() == sums
    assert list(InvoiceDocument.objects.order_by("pk").values_list("sha256", flat=True)) == documents
