"""Who reads the history on from a number misses nothing: transactions are numbered as they commit."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from decimal import Decimal
from threading import Event

import pytest
from django.db import DatabaseError, connection, transaction

from billing.models import TaxRate
from portal.core.audit.models import AuditCommit, AuditEntry
from tests.owner import as_owner

pytestmark = pytest.mark.django_db(transaction=True)

PATIENCE = 30  # seconds
GATE = 20260301  # an advisory lock
WAITING = """
CREATE FUNCTION wait_at_the_gate() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_advisory_xact_lock_shared({gate}); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER waits_in_its_commit AFTER INSERT ON billing_taxrate DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.category = 'slow') EXECUTE FUNCTION wait_at_the_gate()
"""
STANDS_AT_THE_GATE = """
SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND NOT granted)
"""


def save(category: str) -> None:
    TaxRate.objects.create(country="DE", category=category, rate=Decimal(19), since=date(2026, 3, 1))


def entry(category: str) -> AuditEntry:
    return AuditEntry.objects.get(table="billing_taxrate", operation="insert", after__category=category)


def number(category: str) -> int:
    """The place of what wrote it in the order of commits."""
    commit_number = AuditCommit.objects.get(transaction=entry(category).transaction).number
    assert commit_number is not None
    return commit_number


def run(statement: str, *params: str | int) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return bool(cursor.fetchone()[0])


@pytest.fixture
def gate() -> Iterator[None]:
    """A commit of the category `slow` waits until the gate is opened."""
    with as_owner() as owner:
        owner.execute(WAITING.format(gate=GATE))
    try:
        yield
    finally:
        with as_owner() as owner:
            owner.execute("DROP FUNCTION wait_at_the_gate CASCADE")


def test_a_transaction_that_is_long_in_its_commit_is_numbered_after_one_that_overtakes_it(gate: None) -> None:
    begun = Event()

    def slow() -> None:
        try:
            with transaction.atomic():
                save("first")  # asks for its number before the gate, and gets it behind
                save("slow")
                begun.set()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        run("SELECT pg_advisory_lock(%s) IS NULL", GATE)
        try:
            running = pool.submit(slow)
            assert begun.wait(PATIENCE)
            pause, waited = Event(), 0.0
            while not run(STANDS_AT_THE_GATE, GATE):
                assert waited < PATIENCE
                waited += 0.02
                pause.wait(0.02)
            save("quick")
            read_up_to = number("quick")
            assert not AuditCommit.objects.exclude(number=read_up_to).exists()
            assert not running.done()
        finally:
            run("SELECT pg_advisory_unlock(%s)", GATE)
        running.result(PATIENCE)
    beyond = AuditCommit.objects.filter(number__gt=read_up_to).values_list("transaction", flat=True)
    assert list(beyond) == [entry("slow").transaction]
    assert entry("first").transaction == entry("slow").transaction < entry("quick").transaction


def test_a_restored_history_goes_on_whatever_the_other_server_counts_from() -> None:
    """Transactions of the old server stand there under the numbers that the new one is about to give."""
    save("before")
    with transaction.atomic():
        run("SELECT set_config('session_replication_role', 'replica', true)")  # as a restore writes rows
        with as_owner() as owner:
            owner.execute(
                "INSERT INTO audit_commit "
                "SELECT pg_current_xact_id()::text::bigint + n, nextval('audit_commit_number') "
                "FROM generate_series(0, 500) n"
            )
    read_up_to = AuditCommit.objects.latest("number").number
    save("after")
    beyond = AuditCommit.objects.filter(number__gt=read_up_to).values_list("transaction", flat=True)
    assert list(beyond) == [entry("after").transaction]


def test_what_is_undone_in_a_savepoint_leaves_the_rest_of_its_transaction_numbered() -> None:
    with transaction.atomic():
        point = transaction.savepoint()
        save("undone")
        transaction.savepoint_rollback(point)
        save("kept")
        with transaction.atomic():
            save("kept too")
    assert entry("kept").transaction == entry("kept too").transaction
    assert list(AuditCommit.objects.values_list("number", flat=True)) == [number("kept")]


def test_nobody_joins_the_transaction_of_another_by_a_setting() -> None:
    save("theirs")
    with transaction.atomic():
        run("SELECT set_config('app.transaction', %s, true)", str(entry("theirs").transaction))
        save("ours")
    assert number("ours") > number("theirs")


@pytest.mark.parametrize("table", ["audit_entry", "audit_commit"])
def test_neither_the_history_nor_its_order_is_ever_emptied(table: str) -> None:
    save("kept")
    with pytest.raises(DatabaseError, match="The history is kept as it was written"), as_owner() as owner:
        owner.execute(f"TRUNCATE {table}")
    assert number("kept")


def test_no_function_that_runs_as_the_tables_owner_may_be_run_by_everybody() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT proname, has_function_privilege('public', oid, 'EXECUTE') FROM pg_proc "
            "WHERE prosecdef AND pronamespace = 'public'::regnamespace"
        )
        functions = dict(cursor.fetchall())
    assert {
        "audit_record",
        "audit_number",
        "billing_ensure_month",
        "billing_ensure_jobs",
        "clusters_ensure_month",
        "clusters_ensure_records",
    } <= functions.keys()
    assert {name for name, everybody in functions.items() if everybody} == set()
