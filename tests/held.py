"""The seconds that a run held its resources, as the database counts them for everything that is billed."""

from __future__ import annotations

from django.db import connection

SECONDS_SQL = """
SELECT held_seconds(part.since, part.until, run.started, run.finish, run.suspended)
FROM unnest(%s::bigint[], %s::bigint[]) WITH ORDINALITY AS part (since, until, place),
     (SELECT %s::bigint AS started, %s::bigint AS finish, %s::bigint AS suspended) AS run
ORDER BY part.place
"""


def held_in_parts(*parts: tuple[int, int], started: int, ended: int, suspended: int = 0) -> list[int]:
    """In each part of its time, all in epoch seconds."""
    since, until = [part[0] for part in parts], [part[1] for part in parts]
    with connection.cursor() as cursor:
        cursor.execute(SECONDS_SQL, [since, until, started, ended, suspended])
        return [seconds for (seconds,) in cursor.fetchall()]
