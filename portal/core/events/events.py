"""Writing events: a row of the transaction that causes it, so that what is rolled back was never told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db import connection
from django.db.transaction import TransactionManagementError

from portal.core.events.models import Event, EventType


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """What happened to the row `key` of a `kind` ("inv"), and the state that it has since.

    `cause` is for what is looked for again and again, such as an overdue invoice: an event of a type is written once
    for each. `tenant` None: it is the operators' own.
    """

    type: EventType
    kind: str
    key: int
    state: str
    tenant: int | None
    cause: str = ""


def record(
    event_type: EventType, *, kind: str, key: int, state: str, tenant: int | None, cause: str = ""
) -> None:
    """Write one event. Raises TransactionManagementError outside of a transaction."""
    record_many([Fact(type=event_type, kind=kind, key=key, state=state, tenant=tenant, cause=cause)])


def record_many(facts: Iterable[Fact]) -> None:
    """As `record`, of many by one statement."""
    if not connection.in_atomic_block:
        raise TransactionManagementError("An event belongs into the transaction that causes it.")
    rows = [
        Event(
            type=fact.type,
            kind=fact.kind,
            key=fact.key,
            state=fact.state,
            tenant_id=fact.tenant,
            cause=fact.cause,
        )
        for fact in facts
    ]
    if rows:
        Event.objects.bulk_create(rows, ignore_conflicts=True)
