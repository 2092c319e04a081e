"""Effects that a real worker does on behalf of tests; each leaves a row in the table that `effects` makes."""

from __future__ import annotations

import time
from pathlib import Path

import psycopg
from django.db import connection

WAIT_SECONDS = 60


def nothing(**_: object) -> None:
    """For messages that no worker takes."""


def record(*, mark: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO effects (mark) VALUES (%s)", [mark])


def record_and_wait(*, mark: str, entered: str, released: str) -> None:
    """Write, say so, and hold the transaction open until released."""
    record(mark=mark)
    Path(entered).touch()
    end = time.monotonic() + WAIT_SECONDS
    while not Path(released).exists() and time.monotonic() < end:
        time.sleep(0.02)


def count_twice(*, database_url: str) -> None:
    """Record how many marks there are, before and after somebody else leaves one."""
    with connection.cursor() as cursor:
        counts = []
        for _ in range(2):
            cursor.execute("SELECT count(*) FROM effects")
            counts.append(cursor.fetchone()[0])
            with psycopg.connect(database_url) as other:
                other.execute("INSERT INTO effects (mark) VALUES ('of another')")
    record(mark=f"{counts[0]}, then {counts[1]}")


def record_and_fail(*, mark: str) -> None:
    record(mark=mark)
    raise ConnectionError("the mail server is away")
