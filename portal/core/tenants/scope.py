"""Reading and acting as one tenant: beneath the filters of the code, the database shows no other tenant's row."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from django.db import NotSupportedError, connection, transaction
from psycopg import ClientCursor
from psycopg.pq import TransactionStatus

if TYPE_CHECKING:
    from portal.core.tenants.models import Tenant

T = TypeVar("T")

_SET = "SELECT set_config('role', %s, true), set_config('app.tenant_id', %s, true), set_config('app.users', %s, true)"
_LIMIT = "set_config('statement_timeout', %s, true)"
_settings: ContextVar[tuple[str, str, str]] = ContextVar("_settings", default=("none", "", ""))
"""Role, tenant and users of the transaction, to which it returns from a scope within it."""
_reads: ContextVar[bool] = ContextVar("_reads", default=False)
"""Whether a `reading_scope` holds within an acting one."""


@contextmanager
def tenant_scope(tenant: Tenant, *, longest_query: str = "") -> Iterator[None]:
    """A transaction in which only rows of `tenant` can be read, and nothing can be written.

    For a member who sees their own usage alone (`only_users`), jobs of these users, and totals of their projects.
    Both settings end with the transaction; inside an outer one they are reset at the end of the block, and a failure
    resets them with the savepoint. `longest_query`, such as "10s", limits each statement of the transaction in the same
    round trip.
    """
    inside, outer = connection.in_atomic_block, _settings.get()
    with transaction.atomic():
        role, users = "clustertab_portal", ""
        if tenant.only_users is not None:
            role, users = "clustertab_member", json.dumps(tenant.only_users)
        _set(role, str(tenant.pk), users, longest_query)
        _settings.set((role, str(tenant.pk), users))
        try:
            yield
        finally:
            _settings.set(outer)
        if inside:
            _set(*outer)


@contextmanager
def acting_scope(tenant: Tenant) -> Iterator[None]:
    """What is done for `tenant`, and computed by plans that its pages may not read: no other tenant's row is there.

    There may be several transactions in the block, and none: each statement takes the scope in its own message.
    Inside a `tenant_scope`, that one holds again at the end of the block.
    """
    inside = connection.in_atomic_block
    try:
        with connection.execute_wrapper(_scoped("clustertab_agent", tenant)):
            yield
    finally:
        if (
            inside and not connection.needs_rollback and not _has_failed()
        ):  # else it ends with the transaction
            _set(*_settings.get())


@contextmanager
def reading_scope(tenant: Tenant) -> Iterator[None]:
    """A `tenant_scope`, also within an `acting_scope`, which holds again at the end of the block."""
    token = _reads.set(True)
    try:
        with tenant_scope(tenant):
            yield
    finally:
        _reads.reset(token)


def _set(role: str, tenant: str, users: str, longest_query: str = "") -> None:
    with connection.cursor() as cursor:
        if longest_query:
            cursor.execute(_SET + ", " + _LIMIT, [role, tenant, users, longest_query])
        else:
            cursor.execute(_SET, [role, tenant, users])


def _has_failed() -> bool:
    session = connection.connection
    return session is not None and session.info.transaction_status == TransactionStatus.INERROR


def limit_queries(longest: str) -> None:
    """Cut off each statement of the transaction that takes longer, such as "10s"; QueryCanceled is the cause then."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT " + _LIMIT, [longest])


def own_work_tables() -> None:
    """Let go of the session's working tables, where another role made them: who acts for a tenant makes its own.

    Call it in a transaction that is taken back, as for a quote: nobody else could work in the tables that follow.
    """
    with connection.cursor() as cursor:
        cursor.execute(_ANOTHERS)
        if cursor.fetchone()[0]:
            cursor.execute("DISCARD TEMP")


_ANOTHERS = """
SELECT EXISTS (SELECT FROM pg_class WHERE relnamespace = pg_my_temp_schema() AND relowner <> current_user::regrole)
"""


def _scoped(role: str, tenant: Tenant) -> Callable[..., Any]:
    settings = _SET % (f"'{role}'", f"'{tenant.pk:d}'", "''") + ";"

    def scoped(execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
        cursor = context["cursor"]
        if many or getattr(cursor, "name", None):
            raise NotSupportedError("What is asked so needs a transaction: tenant_scope.")
        if _reads.get() or _has_failed():  # of the latter all that can follow is the way back to a savepoint
            return execute(sql, params, many, context)
        if not isinstance(cursor.cursor, ClientCursor):  # `prepared_cursor`
            return _pipelined(settings, partial(execute, sql, params, many, context))
        text = sql.decode() if isinstance(sql, bytes) else sql
        answer = execute(settings + text, params, many, context)
        cursor.set_result(1)
        return answer

    return scoped


def _pipelined(settings: str, execute: Callable[[], Any]) -> Any:
    """Statements of one pipeline are of one transaction, as those of one message are."""
    with connection.connection.pipeline():
        connection.connection.execute(settings)
        return execute()


def stream_in_scope(tenant: Tenant, pieces: Iterable[T]) -> Generator[T, None, None]:
    """The pieces of an answer that is sent after its view has returned, each made inside the scope.

    All of them may be rows of one statement, which lasts as long as the reader takes them.
    """
    with tenant_scope(tenant, longest_query="1h"):
        yield from pieces
