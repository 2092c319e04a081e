"""Emptying the test database after a test that committed, and the session that all tests of a process share."""

from __future__ import annotations

from functools import cache

from django.db import connection, transaction
from django.test import TransactionTestCase

from clusters import temp_tables
from portal.schema.levels import CURRENT
from tests.owner import as_owner

TABLES = """
SELECT oid::regclass::text FROM pg_class
 WHERE relkind IN ('r', 'p') AND NOT relispartition AND relnamespace = 'public'::regnamespace
   AND relname NOT LIKE 'billing_drops_%'  -- which never has a row, and another name after each drop
 ORDER BY 1
"""
TRUNCATE = """
ALTER TABLE audit_entry DISABLE TRIGGER USER; ALTER TABLE audit_commit DISABLE TRIGGER USER;
TRUNCATE {}, billing_proofmark CASCADE;
ALTER TABLE audit_entry ENABLE TRIGGER USER; ALTER TABLE audit_commit ENABLE TRIGGER USER
"""
LEVEL = (
    f"UPDATE schema_level SET programs_from = {CURRENT.programs_from}"  # which the first dropped month raises
)
SESSION = "RESET SESSION AUTHORIZATION; RESET ALL; UNLISTEN *; SELECT pg_advisory_unlock_all()"
ROWS = "PREPARE filled_tables AS SELECT array_remove(ARRAY[{}], NULL)"
FILLED = "CASE WHEN EXISTS (SELECT FROM {0}) THEN '{0}' END"


@cache
def _tables_to_empty() -> list[str]:
    """Called first before any test wrote a row."""
    with connection.cursor() as cursor:
        cursor.execute(TABLES)
        tables = [table for (table,) in cursor.fetchall()]
        cursor.execute(f"SELECT ARRAY[{', '.join(map(FILLED.format, tables))}]")
        brought = set(cursor.fetchone()[0])
    return [table for table in tables if table not in brought]


@cache
def _may_skip_triggers() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT has_parameter_privilege('session_replication_role', 'SET')")
        return bool(cursor.fetchone()[0])


def prepare() -> None:
    """Have tests that commit end in `empty`, and all tests share one session with its working tables.

    A process of the site keeps its session, too. A new one after each test that committed would look up and plan
    everything anew, and what is made within a test that does not commit is gone with it: 26 tables in each.
    """
    _tables_to_empty()
    with connection.cursor() as cursor:
        temp_tables.prepare(cursor, *temp_tables.TABLES)
    # No stub knows them.
    setattr(TransactionTestCase, "_fixture_teardown", lambda case: empty())  # noqa: B010
    setattr(TransactionTestCase, "_should_reload_connections", lambda case: False)  # noqa: B010


def empty() -> None:
    """Delete the rows of all tables that had none after the migrations; what these brought along stays.

    Django's own way empties all tables and makes content types and permissions anew, which takes 1.5 s.
    """
    with connection.cursor() as cursor:
        cursor.execute(SESSION)
        cursor.execute("SELECT count(*) FROM pg_prepared_statements WHERE name = 'filled_tables'")
        if not cursor.fetchone()[0]:  # planning it takes five times as long as asking
            cursor.execute(ROWS.format(", ".join(map(FILLED.format, _tables_to_empty()))))
        cursor.execute("EXECUTE filled_tables")
        filled: list[str] = cursor.fetchone()[0]
        if not filled:
            return
        if _may_skip_triggers():
            with transaction.atomic():
                cursor.execute("SET LOCAL session_replication_role = replica")
                with as_owner() as owner:
                    owner.execute("; ".join([*(f"DELETE FROM {table}" for table in filled), LEVEL]))
        else:
            with as_owner() as owner:
                owner.execute(TRUNCATE.format(", ".join(filled)) + "; " + LEVEL)
