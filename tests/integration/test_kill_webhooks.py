"""Kill -9 of workers that send webhooks: each event arrives, under one id, however often somebody dies. Case 53."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from threading import Lock

import pytest
from django.db import transaction

from portal.core.events.models import Event
from portal.core.webhooks import deliveries, delivery_attempt
from portal.core.webhooks.models import Delivery, DeliveryState, Webhook
from tests import builders
from tests.fakes.receiver import Arrival, Receiver, Reply
from tests.integration.operators import Operator
from tests.webhooks import a_webhook, an_endpoint, happens

pytestmark = pytest.mark.usefixtures("transactional_db")

EVENTS = 8
SEEDS = (1, 2, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 30)))


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("WEBHOOK_ALLOWED_NETWORKS", "127.0.0.0/8")
    monkeypatch.setenv("WEBHOOK_ALLOW_HTTP", "yes")
    with an_endpoint() as receiver:
        yield receiver


class Killer:
    """Kills the sending process when the endpoint has an event, before or after it answers."""

    def __init__(self, receiver: Receiver, dice: random.Random) -> None:
        self.dice, self.lock = dice, Lock()
        self.victim, self.left = 0, 0
        receiver.reply = self.reply

    def reply(self, arrival: Arrival) -> Reply:
        with self.lock:
            self.left -= 1
            if self.left == 0:
                while not self.victim:
                    time.sleep(0.001)
                time.sleep(self.dice.uniform(0, 0.02))
                os.kill(self.victim, signal.SIGKILL)
        return Reply()

    def kills_one_that_sends(self, op: Operator) -> None:
        self.victim = 0
        self.left = self.dice.randint(1, 3)
        self.victim = op.begins("task", "portal.core.webhooks.tasks.deliver")
        assert op.ends() == -signal.SIGKILL


def claims_end() -> None:
    """A minute passes."""
    Webhook.objects.update(claimed_until=datetime.now(UTC) - delivery_attempt.CLAIM)


@pytest.mark.parametrize("seed", SEEDS)
def test_api_053_what_is_committed_arrives_although_workers_are_killed_while_they_send(
    seed: int, database_url: str, receiver: Receiver
) -> None:
    vision = builders.a_tenant("vision")
    a_webhook(receiver, vision)
    with transaction.atomic():
        happens(vision, *range(EVENTS))
    deliveries.place_events(moment=datetime.now(UTC) - timedelta(seconds=1))
    killer = Killer(receiver, random.Random(seed))
    with Operator(database_url) as op:
        for _ in range(2):
            killer.kills_one_that_sends(op)
            claims_end()
        killer.left = 0
        op.does("task", "portal.core.webhooks.tasks.deliver")
    sequences = [arrival.body["sequence"] for arrival in receiver.arrivals]
    assert list(dict.fromkeys(sequences)) == list(range(1, EVENTS + 1))  # in order, and none is missing
    assert len(sequences) <= EVENTS + 2  # one more for each that died
    assert len({arrival.id for arrival in receiver.arrivals}) == EVENTS
    assert {*Delivery.objects.values_list("state", flat=True)} == {DeliveryState.DELIVERED}


def test_api_053_killed_between_the_row_and_its_place_an_event_is_still_sent(
    database_url: str, receiver: Receiver
) -> None:
    """Whoever gives places is killed at a moment of chance, again and again: each event has one delivery."""
    vision = builders.a_tenant("vision")
    a_webhook(receiver, vision)
    dice = random.Random(7)
    with Operator(database_url) as op:
        for key in range(5):
            with transaction.atomic():
                happens(vision, *range(key * 10, key * 10 + 10))
            pid = op.begins("task", "portal.core.webhooks.tasks.place_events")
            time.sleep(dice.uniform(0, 0.2))
            with suppress(ProcessLookupError):  # it was done
                os.kill(pid, signal.SIGKILL)
            op.ends()
        while deliveries.place_events(moment=datetime.now(UTC)):
            pass
        op.does("task", "portal.core.webhooks.tasks.deliver")
    assert Event.objects.count() == 50
    sequences = [arrival.body["sequence"] for arrival in receiver.arrivals]
    assert sequences == list(range(1, 51))
