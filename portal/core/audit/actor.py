"""Who acts, through what, and why: told to the database with every statement that may change something."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction
from django.db.backends.postgresql.base import Cursor
from psycopg import ClientCursor, Copy
from psycopg.pq import TransactionStatus

# What begins so changes no row that is tracked, or may not stand beside another statement.
WITHOUT_CHANGE = (
    "select", "set ", "reset", "show", "begin", "start", "commit", "rollback", "savepoint", "release", "lock",
    "declare", "fetch", "close", "listen", "notify", "vacuum", "analyze", "explain", "copy", "create", "alter",
    "drop", "truncate", "grant", "revoke",
)  # fmt: skip
NAMING = (
    "SELECT set_config('app.who', %s, true), set_config('app.through', %s, true), "
    "set_config('app.why', %s, true)"
)


INTO_A_TABLE = re.compile(r"\bFROM\s+STDIN\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Actor:
    """`who` may be a function: who is signed in can change in the middle of a request."""

    who: str | Callable[[], str] = ""
    through: str = ""
    why: str = ""

    def values(self) -> tuple[str, str, str]:
        """As the database is told."""
        return (self.who() if callable(self.who) else self.who, self.through, self.why)


_actor: ContextVar[Actor | None] = ContextVar("actor", default=None)


@contextmanager
def acting_as(who: str | Callable[[], str] = "", *, why: str = "", through: str = "") -> Iterator[None]:
    """Attach the actor, the reason and the door to all history written in the block.

    `through` is a page, command, file, API key or task. Inside of another block, whatever is left out stays as it is.
    """
    outer = _actor.get()
    base = outer or Actor()
    token = _actor.set(Actor(who or base.who, through or base.through, why or base.why))
    try:
        with ExitStack() as stack:
            if outer is None:
                stack.enter_context(connection.execute_wrapper(_named))
            yield
    finally:
        _actor.reset(token)
        if outer is None:
            _forget()


def _named(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
    """Before a statement that may change something, in the same round trip and transaction, say who acts.

    A setting that is local to a transaction can reach no other one, whatever happens to the connection; and where
    no transaction is open, two statements of one text are one.
    """
    actor = _actor.get()
    if actor is None or not _may_change(sql, context["cursor"]):
        return execute(sql, params, many, context)
    if many or isinstance(params, dict):  # which cannot be two statements in one
        with nullcontext() if connection.in_atomic_block else transaction.atomic():
            context["cursor"].cursor.execute(NAMING, actor.values())  # `execute` may be the one for many
            return execute(sql, params, many, context)
    text = _text(sql) if params is not None else _text(sql).replace("%", "%%")
    result = execute(f"{NAMING}; {text}", (*actor.values(), *(params or ())), False, context)
    cursor = context["cursor"].cursor
    while cursor.nextset():
        pass
    return result


class NamingCursor(Cursor, ClientCursor[Any]):
    """Of every connection (`DATABASES`): a COPY goes past what Django wraps around statements."""

    @contextmanager
    def copy(self, statement: Any, *args: Any, **options: Any) -> Iterator[Copy]:
        actor = _actor.get()
        with ExitStack() as stack:
            if actor is not None and INTO_A_TABLE.search(_text(statement)):
                if self.connection.info.transaction_status == TransactionStatus.IDLE:
                    stack.enter_context(self.connection.transaction())
                self.execute(NAMING, actor.values())
            yield stack.enter_context(super().copy(statement, *args, **options))


def _text(sql: Any) -> str:
    return sql.decode() if isinstance(sql, bytes) else str(sql)


def _may_change(sql: Any, cursor: Any) -> bool:
    if not isinstance(sql, str | bytes) or getattr(cursor, "name", None):
        return False
    if connection.connection.info.transaction_status == TransactionStatus.INERROR:
        return False
    return not _text(sql).lstrip(" \n\t(").lower().startswith(WITHOUT_CHANGE)


def _forget() -> None:
    """Within a transaction that goes on, what comes after the block is nobody's."""
    if not connection.in_atomic_block or connection.needs_rollback or connection.connection is None:
        return
    if connection.connection.info.transaction_status == TransactionStatus.INTRANS:
        with connection.cursor() as cursor:
            cursor.execute(NAMING, ("", "", ""))
