"""Work that one process does at a time: locks of the session, not of a transaction, since networks are asked within.

A process that dies gives its locks free with its connection to the database.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum

from django.db import DatabaseError, connection


class Work(IntEnum):
    """What is done alone, by the number of its advisory lock, which only has to be nobody else's."""

    ACTING = 0x0AC7  # on one cluster
    PULLING = 0x0C1057E3  # one cluster
    CLOSING = 0x0C105E  # one run of a close
    IMPORTING = 0x1F11E  # files of one cluster
    COLLECTING = 0xC011EC7
    REVIEWING_QUOTAS = 0x900A5
    REVIEWING_WASTE = 0x3A57E
    REVIEWING_FAILURES = 0xFA17
    LIMITING = 0x11317
    ENDING_JOBS = 0xE4D  # on one cluster
    PRICING_JOBS = 0x9B1CE  # of one cluster
    RECONCILING = 0xBA1A9CE
    PROVING = 0x9200F
    MIGRATING = 0x5C4E3A
    SIGNING_UP = 0x516A
    IMPORTING_BILLS = 0xB111
    EXPORTING = 0xE4907  # what is stored of one person
    EXPORT_PLACE = 0xE4908  # one of those in which people are exported at once
    EXPORTING_CHARGES = 0xE4909
    COUNTING_RUNS = 0xC0047  # many, of one tenant
    PREVIEWING = 0x93E1E3  # one preview
    SEALING = 0x5EA1
    SEAL_RUNS = 0x5EA2


@contextmanager
def alone(work: Work, *row: int) -> Iterator[bool]:
    """Whether nobody else does this work until the block ends; with the key of a row, on that row. Does not wait."""
    ours = _ask("pg_try_advisory_lock", work, *row)
    try:
        yield ours
    finally:
        if ours:
            with suppress(DatabaseError):  # gone with its connection otherwise
                _ask("pg_advisory_unlock", work, *row)


@contextmanager
def in_turn(work: Work) -> Iterator[None]:
    """Wait until nobody else does this work, and keep others waiting until the block ends."""
    _ask("pg_advisory_lock", work)
    try:
        yield
    finally:
        with suppress(DatabaseError):  # gone with its connection otherwise
            _ask("pg_advisory_unlock", work)


def hold(work: Work) -> None:
    """Inside a transaction: wait until nobody else does this work, and keep others waiting until it ends."""
    _ask("pg_advisory_xact_lock", work)


def hold_name(name: str) -> None:
    """As `hold`, of what is done to the object of this name."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [name])


def try_hold(work: Work, *row: int) -> bool:
    """Inside a transaction, whether nobody else does this work, as `alone` says; others are refused until it ends."""
    return _ask("pg_try_advisory_xact_lock", work, *row)


def _ask(function: str, *key: int) -> bool:
    with connection.cursor() as cursor:
        cursor.callproc(function, [int(number) for number in key])
        (answer,) = cursor.fetchone()
    return bool(answer)
