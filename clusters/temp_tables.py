"""Session-local working tables: made once per connection, emptied at each commit."""

from __future__ import annotations

from typing import Any


def empty(cursor: Any, *tables: str) -> None:
    """Empty those that still hold rows of an earlier batch of the same transaction.

    TRUNCATE gives a table a new file and a new row in the catalogue, which costs as much as a small
    batch: it is spared where the last commit has emptied them already, and that is nearly always.
    """
    held = " OR ".join(f"EXISTS (TABLE {table})" for table in tables)
    cursor.execute(f"SELECT {held}")
    if cursor.fetchone()[0]:
        cursor.execute(f"TRUNCATE {', '.join(tables)}")
