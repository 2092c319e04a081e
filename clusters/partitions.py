"""Statements over records of one month, which are sent with its partition in the table's place."""

from __future__ import annotations

_TABLE = "clusters_usagerecord r\n"


def of_partition(statement: str, partition: str) -> str:
    """The statement, which names the table in a line's end, over one partition: only its unique index finds by keys."""
    before, table, after = statement.partition(_TABLE)
    if not table or _TABLE in after:
        raise ValueError("The statement names the table once, at the end of a line.")
    return f"{before}{partition} r\n{after}"
