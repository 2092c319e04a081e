"""Session-local working tables; `temp_tables.sql` lists all of them."""

from __future__ import annotations

import re
from typing import Any, Final

from portal.sql_files import Statements

sql = Statements(__file__, "temp_tables.sql")

TABLES: Final = {
    name: re.findall(r"CREATE TEMP TABLE IF NOT EXISTS (\w+)", text) for name, text in sql.by_name.items()
}
"""The tables of each set: LEDGER, USAGE, FILED, UTILISATION, OFFER, RATE, SUPPOSE, BILL."""


def prepare(cursor: Any, *sets: str) -> None:
    """Make the tables of these sets where they are missing, and empty them."""
    cursor.execute(";".join(sql.by_name[name] for name in sets))
    empty(cursor, *sets)


def empty(cursor: Any, *sets: str) -> None:
    """Empty those that have rows of an earlier batch of the same transaction.

    TRUNCATE gives a table a new file and a new row in the catalogue, and two dozen of them cost as much as a
    small batch: tables that the last commit has emptied already are spared, and these are nearly always all.
    """
    tables = [table for name in sets for table in TABLES[name]]
    filled = ", ".join(f"CASE WHEN EXISTS (TABLE {table}) THEN '{table}' END" for table in tables)
    cursor.execute(f"SELECT concat_ws(', ', {filled})")
    if names := cursor.fetchone()[0]:
        cursor.execute(f"TRUNCATE {names}")
