"""Kill -9 while a worker computes what the page *Efficiency* shows: what was there stays until newer figures are."""

from __future__ import annotations

import json
import random
import time
from datetime import UTC, datetime

import pytest
from django.db import transaction

from billing.models import EfficiencySnapshot
from portal.core.outbox import outbox
from portal.core.outbox.models import OutboxMessage
from tests.builders import a_cluster, a_job, a_plan, a_tenant, at, ingest
from tests.integration.operators import Operator

pytestmark = pytest.mark.usefixtures("transactional_db")

KILLS = 5
START = int(at("2026-03-01").timestamp())


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 10))])
def test_figures_are_those_before_or_after_however_often_a_worker_is_killed(
    seed: int, database_url: str
) -> None:
    dice = random.Random(seed)
    cluster = a_cluster(complete_through="2026-04-01")
    lab = a_tenant("lab", plan=a_plan(), accounts=[(cluster, "vision")])
    jobs = [START + 600 * number for number in range(3_000)]
    ingest(cluster, *(a_job(user=f"u{begin % 7}", started=begin, ended=begin + 3600) for begin in jobs))
    snapshot = EfficiencySnapshot.objects.create(tenant=lab, since=START, until=START + 31 * 86_400)
    killed = 0
    with Operator(database_url) as op:
        took = op.does("task", CONSUME, requested(snapshot.pk))
        first = EfficiencySnapshot.objects.get()
        assert (first.requested_at, first.answers["project"]["rows"][0][0]) == (None, "gpu")
        ingest(cluster, a_job(started="2026-03-20", ended="2026-03-21", user="new"))
        message, shown = requested(snapshot.pk), first
        for _kill in range(KILLS):
            killed += op.is_killed_doing(
                "task", CONSUME, message, count=lambda: 1, at=1, after=dice.uniform(0, 0.8 * took)
            )
            undone, before = is_undone(), shown
            shown = EfficiencySnapshot.objects.get()
            if undone:
                assert shown.answers == before.answers
            else:  # it was quicker
                message = requested(snapshot.pk)
        op.does("task", CONSUME, message)
    assert killed >= KILLS - 2
    last = EfficiencySnapshot.objects.get()
    assert (last.requested_at, is_undone()) == (None, False)
    assert any(row[1] == "new" for row in last.answers["user"]["rows"])
    assert not any(row[1] == "new" for row in first.answers["user"]["rows"])


def is_undone() -> bool:
    """Whether the message is to be done again, once the server has let go of what a killed worker held."""
    undone = OutboxMessage.objects.undone()
    while undone.exists():
        with transaction.atomic():
            if undone.select_for_update(skip_locked=True).first() is not None:
                return True
        time.sleep(0.05)
    return False


CONSUME = "portal.core.outbox.outbox.consume"


def requested(snapshot: int) -> str:
    """As a page requests it; what a worker is told of it."""
    with transaction.atomic():
        EfficiencySnapshot.objects.filter(pk=snapshot).update(requested_at=datetime.now(UTC))
        message = outbox.add("billing.tasks.refresh_efficiency", snapshot_id=snapshot)
    return json.dumps({"message_id": message.pk, "task": message.task})
