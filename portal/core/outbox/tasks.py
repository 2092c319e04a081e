"""What the scheduler and the workers run of the outbox."""

from __future__ import annotations

from celery import shared_task

from portal.core.outbox import outbox
from portal.queues import queue_of


@shared_task
def dispatch(**_: object) -> None:
    """Tell workers what is due. Runs every few seconds; twice at once is one too many and does nothing."""
    outbox.dispatch(_send)


def _send(message_id: int, task: str) -> None:
    consume.apply_async(kwargs={"message_id": message_id, "task": task}, queue=queue_of(task))


@shared_task
def consume(*, message_id: int, task: str = "", **_: object) -> None:
    """Have one effect happen, unless it has, or happens elsewhere; what it leaves to others waits for no clock."""
    if outbox.consume(message_id, task):
        outbox.dispatch(_send)
