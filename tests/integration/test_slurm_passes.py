"""However the passes over a real Slurm fall, they end in the same records."""

from __future__ import annotations

import random
import time
from itertools import pairwise

import pytest

from clusters.models import Cluster, Pull, UsageRecord
from tests.builders import a_plan, a_tenant
from tests.integration.slurm_lab import Lab
from tests.integration.slurm_oracle import oracle
from tests.integration.slurm_pulls import ACCOUNTS, compare, connected, ledger, pull, same, text
from tests.stories import prove, seconds

pytestmark = pytest.mark.usefixtures("transactional_db")

PASSES = 10


def test_one_pass_and_ten_during_the_jobs_and_windows_at_random_give_the_same(slurm_lab: Lab) -> None:
    plan = a_plan()
    began = slurm_lab.began
    often = connected(slurm_lab, "often")
    # Each has tenants of its own, so that what is billed can be compared too.
    acme_often = a_tenant("often", plan=plan, accounts=[(often, account) for account in ACCOUNTS])
    marks = []

    with slurm_lab.doing("jobs") as they_run:
        while they_run():
            pull(often)
            marks.append(Cluster.objects.get(pk=often.pk).complete_through)
            time.sleep(1)
    pull(often)

    assert len(marks) >= PASSES
    assert None not in marks
    assert marks == sorted(marks)  # type: ignore[type-var]
    rows = oracle(slurm_lab, since=began)
    compare(often, rows)

    once = connected(slurm_lab, "once")
    acme_once = a_tenant("once", plan=plan, accounts=[(once, account) for account in ACCOUNTS])
    pull(once)
    compare(once, rows)
    same(ledger(often), ledger(once))

    anyhow = connected(slurm_lab, "anyhow")
    for since, until in windows(began, int(time.time()), random.Random(3)):
        pull(anyhow, "--since", text(since), "--until", text(until))
    same(ledger(anyhow), ledger(once))
    compare(anyhow, rows)

    assert ended(acme_often.slug) == ended(acme_once.slug) > 0
    assert seconds(acme_often) > 0
    prove()
    assert not Pull.objects.exclude(outcome=Pull.Outcome.DONE).exists()


def test_a_pass_that_finds_what_is_known_writes_no_record(slurm_lab: Lab) -> None:
    cluster = connected(slurm_lab)
    pull(cluster)
    existing = ledger(cluster)

    counts = pull(cluster)

    assert (counts["new"], counts["quarantined"]) == (0, 0)
    assert ledger(cluster) == existing
    assert set(UsageRecord.objects.filter(ended__isnull=False).values_list("revision", flat=True)) == {1}


def windows(first: int, last: int, dice: random.Random) -> list[tuple[int, int]]:
    """Windows of any length in any order, which together cover it all."""
    borders = sorted({first, last, *(dice.randrange(first, last) for _ in range(6))})
    cut = list(pairwise(borders))
    for _ in range(4):
        since = dice.randrange(first, last - 1)
        cut.append((since, dice.randrange(since + 1, last + 1)))
    dice.shuffle(cut)
    return cut


def ended(slug: str) -> int:
    """GPU-seconds of the ended runs of the cluster of that name."""
    runs = UsageRecord.objects.filter(cluster__name=slug, ended__isnull=False)
    return sum(
        run.gpus * (run.ended - run.started - run.suspended) for run in runs if run.ended and run.started
    )
