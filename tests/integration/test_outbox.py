"""What a transaction promised happens once, after it committed; what it did not promise never happens."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import psycopg
import pytest
from django.db import connection, transaction
from django.db.models.functions import Now
from django.db.transaction import TransactionManagementError

from portal import queues
from portal.core.outbox import outbox
from portal.core.outbox.models import OutboxMessage
from tests.integration import effects as effect

Marks = Callable[[], list[str]]


def half_a_minute_passes() -> None:
    OutboxMessage.objects.update(available_at=Now())


def test_work_is_done_once_however_often_it_is_drained(effects: Marks) -> None:
    outbox.add("tests.integration.effects.record", mark="invoice 7 mailed")

    assert outbox.drain() == 1
    assert outbox.drain() == 0
    assert effects() == ["invoice 7 mailed"]


def test_work_of_a_transaction_that_is_rolled_back_never_happens(effects: Marks) -> None:
    with transaction.atomic():
        outbox.add("tests.integration.effects.record", mark="invoice 7 mailed")
        transaction.set_rollback(True)

    assert outbox.drain() == 0
    assert effects() == []


@pytest.mark.django_db(transaction=True)
def test_work_outside_a_transaction_is_refused() -> None:
    with pytest.raises(TransactionManagementError, match="belongs into the transaction"):
        outbox.add("tests.integration.effects.record", mark="invoice 7 mailed")


@pytest.mark.django_db
def test_work_that_could_not_be_found_again_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be imported"):
        outbox.add("billing.tasks.render_nothing")


def test_a_failure_undoes_its_effect_says_why_and_comes_again(
    effects: Marks, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = outbox.add("tests.integration.effects.record_and_fail", mark="invoice 7 mailed")

    assert outbox.drain() == 0
    message.refresh_from_db()
    assert effects() == []
    assert (message.attempts, message.last_error) == (1, "ConnectionError: the mail server is away")
    assert outbox.drain() == 0  # it waits its ten seconds

    monkeypatch.setattr(effect, "record_and_fail", effect.record)
    half_a_minute_passes()
    assert outbox.drain() == 1
    message.refresh_from_db()
    assert effects() == ["invoice 7 mailed"]
    assert (message.attempts, message.last_error) == (2, "")


@pytest.mark.parametrize(
    ("attempts", "seconds"), [(1, 10), (2, 20), (4, 80), (9, 2560), (10, 3600), (50, 3600)]
)
def test_the_wait_doubles_up_to_an_hour(attempts: int, seconds: int) -> None:
    assert outbox.backoff(attempts) == timedelta(seconds=seconds)


def test_a_message_is_sent_once_and_again_when_nothing_came_of_it(effects: Marks) -> None:
    message = outbox.add("tests.integration.effects.record", mark="invoice 7 mailed")
    sent: list[int] = []

    def send(pk: int, task: str) -> None:
        assert task == "tests.integration.effects.record"
        sent.append(pk)

    assert outbox.dispatch(send) == 1
    assert outbox.dispatch(send) == 0
    half_a_minute_passes()
    assert outbox.dispatch(send) == 1
    assert sent == [message.pk, message.pk]

    assert outbox.consume(message.pk)
    assert not outbox.consume(message.pk)
    half_a_minute_passes()
    assert outbox.dispatch(send) == 0
    assert effects() == ["invoice 7 mailed"]


def test_what_waits_for_a_worker_that_is_gone_for_a_day_does_not_fill_the_broker(effects: Marks) -> None:
    message = outbox.add("tests.integration.effects.record", mark="invoice 7 rendered")
    sent = hours = 0
    while hours < 24:
        sent += outbox.dispatch(lambda *_: None)
        message.refresh_from_db()
        waits = message.available_at - message.created_at
        OutboxMessage.objects.update(created_at=Now() - waits, available_at=Now())
        hours = waits // timedelta(hours=1)
    assert 140 < sent < 160  # after 30 s, 1, 2, 4 and 8 minutes, then each ten; every 30 s would be 2,880
    assert outbox.drain() == 1
    assert effects() == ["invoice 7 rendered"]


def test_a_message_that_another_worker_is_doing_is_left_to_it(
    transactional_db: None, database_url: str, effects: Marks
) -> None:
    with transaction.atomic():
        message = outbox.add("tests.integration.effects.record", mark="invoice 7 mailed")

    with psycopg.connect(database_url) as other:
        other.execute("SELECT 1 FROM outbox_outboxmessage FOR UPDATE")
        assert not outbox.consume(message.pk)
        assert outbox.drain() == 0
        other.rollback()

    assert outbox.consume(message.pk)
    assert effects() == ["invoice 7 mailed"]


def test_of_two_dispatchers_one_does_nothing(
    transactional_db: None, database_url: str, effects: Marks
) -> None:
    with transaction.atomic():
        outbox.add("tests.integration.effects.record", mark="invoice 7 mailed")

    with psycopg.connect(database_url) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", [outbox.DISPATCHER_LOCK])
        assert outbox.dispatch(lambda *_: None) == 0
        other.rollback()

    assert outbox.dispatch(lambda *_: None) == 1


@pytest.mark.parametrize("says_task", [True, False])
def test_an_effect_that_needs_one_sight_sees_nothing_that_others_commit_meanwhile(
    transactional_db: None,
    database_url: str,
    effects: Marks,
    monkeypatch: pytest.MonkeyPatch,
    says_task: bool,
) -> None:
    """What a dispatcher of 1.0.0 has sent does not say what its message asks for."""
    task = "tests.integration.effects.count_twice"
    with transaction.atomic():
        messages = [outbox.add(task, database_url=database_url) for _ in range(2)]
    assert outbox.consume(messages[0].pk, task if says_task else "")
    assert "0, then 1" in effects()
    monkeypatch.setattr(queues, "IN_ONE_SIGHT", {task})
    assert outbox.consume(messages[1].pk, task if says_task else "")
    assert "3, then 3" in effects()


def test_a_message_of_another_release_whose_task_is_not_here_says_so_and_comes_again(effects: Marks) -> None:
    message = OutboxMessage.objects.create(task="billing.tasks.of_a_newer_release")
    assert not outbox.consume(message.pk, message.task)
    message.refresh_from_db()
    assert (message.attempts, "of_a_newer_release" in message.last_error) == (1, True)


def test_nobody_waits_for_a_message_that_a_worker_does_for_long(
    transactional_db: None, database_url: str, effects: Marks
) -> None:
    task = "tests.integration.effects.record"
    with transaction.atomic():
        long, other = (outbox.add(task, mark=mark) for mark in ("long", "other"))
    sent: list[int] = []
    with psycopg.connect(database_url) as worker:
        worker.execute("SELECT FROM outbox_outboxmessage WHERE id = %s FOR UPDATE", [long.pk])
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '2s'")
            assert outbox.dispatch(lambda pk, _task: sent.append(pk)) == 1
    assert sent == [other.pk]
