"""What the connector gives of open runs, as the ledger keeps it: time that was billed is never taken back."""

from __future__ import annotations

import pytest

from clusters.connectors.base import UsageFact
from clusters.models import UsageRecord
from tests import builders
from tests.contracts.slurm_recorded import Slurm, a_job, connector, facts, live_jobs, serving

pytestmark = pytest.mark.django_db

MORNING = int(builders.at("2026-03-02 08:00").timestamp())
NOON = int(builders.at("2026-03-02 12:00").timestamp())


def seen(*, at: int, live: bytes) -> UsageFact:
    """Ben's job of eight o'clock, as a pass at that second sees it."""
    job = a_job(7, submit=MORNING, start=MORNING)
    job["time"]["elapsed"] = at - MORNING
    with serving(Slurm(jobs=[job], live=live)) as address:
        source = connector(address, now=at)
        (fact,) = facts(list(source.usage(since=at - 3600, until=at, open_keys=()))).values()
    return fact


def test_a_runaway_job_keeps_what_was_proved_and_gets_no_more() -> None:
    cluster = builders.a_cluster()
    builders.ingest(cluster, seen(at=NOON, live=live_jobs((7, MORNING, "RUNNING"))))
    assert UsageRecord.objects.get().seen_until == NOON

    builders.ingest(cluster, seen(at=NOON + 3600, live=live_jobs()))
    record = UsageRecord.objects.get()
    assert (record.seen_until, record.ended, record.revision) == (NOON, None, 1)


def test_a_job_that_was_never_confirmed_holds_nothing_yet() -> None:
    cluster = builders.a_cluster()
    builders.ingest(cluster, seen(at=NOON, live=live_jobs()))
    assert UsageRecord.objects.get().seen_until == MORNING

    builders.ingest(cluster, seen(at=NOON + 60, live=live_jobs((7, MORNING, "RUNNING"))))
    assert UsageRecord.objects.get().seen_until == NOON + 60
