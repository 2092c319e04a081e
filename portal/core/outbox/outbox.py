"""The transactional outbox: put work into a transaction, and have it happen exactly once after the commit.

`add` writes a row. `dispatch` tells workers about due rows, and tells them again if nothing came
of it. `consume` takes one row and does its effect and its tick in one transaction, so that a
worker killed anywhere leaves either both or neither. Which broker carries the message does not
matter; a lost message only costs time, a doubled one finds the row done or taken.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import timedelta
from functools import cache
from importlib.abc import InspectLoader
from importlib.util import find_spec
from typing import Any

import structlog
from django.db import connection, transaction
from django.db.models import Case, DurationField, ExpressionWrapper, F, TextField, Value, When
from django.db.models.functions import Greatest, Least, Now
from django.db.transaction import TransactionManagementError
from django.utils.module_loading import import_string

from portal import queues
from portal.core import one_sight
from portal.core.outbox import origin
from portal.core.outbox.models import WAITS, OutboxMessage

# One dispatcher at a time, whichever host it runs on. The number only has to be ours.
DISPATCHER_LOCK = 0x0C1057E2
RESEND_AFTER = timedelta(seconds=30)  # a worker that has not begun by then has died or lost the message
LONGEST_RESEND = timedelta(minutes=10)
BATCH = 500  # messages told of in one round
FIRST_BACKOFF = timedelta(seconds=10)  # doubles with each failure
LONGEST_BACKOFF = timedelta(hours=1)

FIND_WAITING: dict[str, Callable[[Sequence[int]], Collection[int]]] = {}
"""By task, if its messages take turns: of some messages, those that have to wait for an earlier one."""

log = structlog.get_logger("portal.core.outbox")


def add(task: str, **kwargs: Any) -> OutboxMessage:
    """Have `task(**kwargs)` called once, after and only if the transaction around this commits.

    `task` is the dotted name of a function or Celery task, so that what asks for work need not import what does it;
    `kwargs` are JSON values. It runs inside a transaction together with its tick, so it may write but must call no
    network. Raises TransactionManagementError outside a transaction, where the promise would be empty.
    """
    return add_many(task, [kwargs])[0]


def add_many(task: str, calls: Iterable[dict[str, Any]]) -> list[OutboxMessage]:
    """As `add`, once for each of the keyword arguments, by one statement."""
    if not connection.in_atomic_block:
        raise TransactionManagementError("outbox.add belongs into the transaction that causes the work.")
    if not _can_be_called(task):
        raise ValueError(f"{task} cannot be imported, so it cannot be called later.")
    traceparent = origin.TRACEPARENT.get()
    return OutboxMessage.objects.bulk_create(
        [OutboxMessage(task=task, kwargs=kwargs, traceparent=traceparent) for kwargs in calls]
    )


@cache
def _can_be_called(name: str) -> bool:
    """Looked up in its module's code, which is not run: Celery alone would take 5 MiB of a web process."""
    module, _, function = name.rpartition(".")
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        return False
    code = spec.loader.get_code(module) if spec and isinstance(spec.loader, InspectLoader) else None
    return code is not None and function in code.co_names


def dispatch(send: Callable[[int, str], object]) -> int:
    """Give ids and tasks of due messages to `send`; how many. Of dispatchers at once, all but one do nothing.

    What is sent is not due again before RESEND_AFTER, and is told of again then if it is still undone, at distances
    that grow with its age: what waits for a worker that is busy or gone would else fill the broker, which all share.
    Messages that wait for others stay here until those are done.
    """
    with transaction.atomic():
        if not _only_dispatcher():
            return 0
        messages = OutboxMessage.objects.due().order_by("available_at", "pk")
        # One that a worker does right now is due again after a while: nobody waits for it.
        messages = messages.select_for_update(skip_locked=True)
        due = list(messages.values_list("pk", "task")[:BATCH])
        put_off = list(OutboxMessage.objects.put_off().order_by("pk").values_list("pk", "task"))
        waiting = _find_waiting([*due, *put_off])
        freed = [pk for pk, _ in put_off if pk not in waiting][:BATCH]
        rows = OutboxMessage.objects.filter(pk__in=freed).order_by("pk").select_for_update(skip_locked=True)
        due += rows.values_list("pk", "task")
        rows = OutboxMessage.objects.filter(pk__in=[pk for pk, _ in due])
        age = ExpressionWrapper(Now() - F("created_at"), DurationField())
        rows.update(
            available_at=Now() + Greatest(RESEND_AFTER, Least(age, LONGEST_RESEND)),
            last_error=Case(
                When(pk__in=waiting, then=Value(WAITS)),
                When(last_error=WAITS, then=Value("")),
                default=F("last_error"),
                output_field=TextField(),
            ),
        )
        due = [(pk, task) for pk, task in due if pk not in waiting]
    for pk, task in due:
        send(pk, task)
    return len(due)


def _find_waiting(due: Sequence[tuple[int, str]]) -> set[int]:
    by_finder: dict[Callable[[Sequence[int]], Collection[int]], list[int]] = {}
    for pk, task in due:
        if task in FIND_WAITING:
            by_finder.setdefault(FIND_WAITING[task], []).append(pk)
    return {pk for find, pks in by_finder.items() for pk in find(pks)}


def consume(message_id: int, task: str = "") -> bool:
    """Do the message's effect, once; whether this call did it.

    False also if it is done already, is being done elsewhere, or fails: then it comes again later. `task` is what the
    message asks for, where that is known: what has to see one moment of the database says so before the first query.
    """
    task = task or OutboxMessage.objects.filter(pk=message_id).values_list("task", flat=True).first() or ""
    with transaction.atomic():
        if task in queues.IN_ONE_SIGHT:
            with connection.cursor() as cursor:
                cursor.execute(one_sight.BEGIN)
        message = (
            OutboxMessage.objects.undone().select_for_update(skip_locked=True).filter(pk=message_id).first()
        )
        return message is not None and _do(message)


def drain() -> int:
    """Do all that is due, here and now, without broker or worker; how many were done. For commands and tests.

    A message that fails is put off as usual, so this ends.
    """
    done = 0
    while True:
        with transaction.atomic():
            due = OutboxMessage.objects.due().order_by("pk").select_for_update(skip_locked=True)
            message = due.first()
            if message is None:
                return done
            done += _do(message)


def _do(message: OutboxMessage) -> bool:
    """Effect and tick under the row's lock; a failure undoes the effect and puts the message off."""
    message.attempts += 1
    try:
        with transaction.atomic(), origin.effect_span(message.task, message.traceparent):
            import_string(message.task)(**message.kwargs)
    except Exception as error:  # whatever it is, the row has to say so
        log.warning("outbox message failed", message=message.pk, task=message.task, exc_info=True)
        message.last_error = f"{type(error).__name__}: {error}"[:2000]
        message.available_at = Now() + backoff(message.attempts)
        message.save(update_fields=["attempts", "last_error", "available_at"])
        return False
    message.last_error, message.done_at = "", Now()
    message.save(update_fields=["attempts", "last_error", "done_at"])
    return True


def backoff(attempts: int) -> timedelta:
    """How long to wait after that many failures: 10 s, 20 s, 40 s ... one hour."""
    doublings = min(attempts - 1, 16)
    return min(FIRST_BACKOFF * (1 << doublings), LONGEST_BACKOFF)


def _only_dispatcher() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [DISPATCHER_LOCK])
        return bool(cursor.fetchone()[0])
