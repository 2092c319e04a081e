"""Several questions to the database in one round trip.

A page asks about twenty, each answered in a fraction of a millisecond: going there and back takes as long as all
answers together, and planning a question longer than answering it. What does not hang from another answer is asked
at once, and what is planned alike for all values is planned once in each connection.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from django.db import DatabaseError, connection
from django.db.models import QuerySet

T = TypeVar("T")

Rows = list[tuple[Any, ...]]
Values = Sequence[object] | Mapping[str, object]


class Ask(Generic[T]):
    """One question, and its answer once it was asked.

    `sql` is one SELECT with the placeholders of `values`; `made` makes the answer of its rows. `kept`: whatever the
    values, its best plan is the same, so that the database may keep it.
    """

    def __init__(self, sql: str, values: Values, made: Callable[[Rows], T], *, kept: bool = False) -> None:
        self.sql, self.values, self.made, self.kept = sql, values, made, kept

    def asked(self) -> T:
        """The answer, by a round trip of its own."""
        together(self)
        return self.answer

    answer: T


@dataclass(frozen=True, slots=True)
class _Kept:
    """A statement under a name in the connection's session."""

    name: str
    prepare: str
    execute: str  # with the placeholders of the statement


def together(*asks: Ask[Any]) -> None:
    """Ask all of them at once; each has its `answer` then.

    The values are placed by the driver on this side, which is what lets several statements travel as one.
    """
    with connection.cursor() as cursor:
        session = cursor.connection
        known = _known.setdefault(session, set())
        new = (
            {}
            if known is None
            else {each.name: each for each in map(_kept, _texts(asks)) if each.name not in known}
        )
        texts = [
            cursor.mogrify(_kept(ask.sql).execute if ask.kept and known is not None else ask.sql, ask.values)
            for ask in asks
        ]
        try:
            cursor.execute(";".join([_READING, *(each.prepare for each in new.values()), *texts]))
        except DatabaseError as error:
            _known[session] = None  # which of the new ones are there now nobody knows
            lost = getattr(error.__cause__, "sqlstate", "") in _LOST
            if known is None or connection.in_atomic_block or not lost:
                raise
        else:
            if known is not None:
                known.update(new)
            for place, ask in enumerate(asks):
                cursor.set_result(place - len(asks))
                ask.answer = ask.made(cursor.fetchall())
            return
    together(*asks)


def _texts(asks: Sequence[Ask[Any]]) -> list[str]:
    return [ask.sql for ask in asks if ask.kept]


@cache
def _kept(sql: str) -> _Kept:
    names: list[str] = []  # of the values, in the order of their numbers; "" where they have none

    def numbered(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        name = found[1] or ""
        if not name or name not in names:
            names.append(name)
        return f"${len(names) if not name else names.index(name) + 1}"

    text = _PLACE.sub(numbered, sql)
    name = f"ask_{hashlib.sha256(sql.encode()).hexdigest()[:16]}"
    values = ", ".join(f"%({each})s" if each else "%s" for each in names)
    return _Kept(
        name, f"PREPARE {name} AS {text}", f"EXECUTE {name}({values})" if values else f"EXECUTE {name}"
    )


_READING = "SELECT"  # nothing; but whoever wraps statements sees by the first word that nothing is written
_PLACE = re.compile(r"%(?:\((\w+)\))?s|%%")
_known: WeakKeyDictionary[psycopg.Connection[Any], set[str] | None] = WeakKeyDictionary()
"""Of each connection the statements that are kept there; None where it is better not to rely on any."""
_LOST = {
    psycopg.errors.InvalidSqlStatementName.sqlstate,  # a pooler between us gave us another session
    psycopg.errors.DuplicatePreparedStatement.sqlstate,
    psycopg.errors.FeatureNotSupported.sqlstate,  # a column is of another type than when it was prepared
}


def of_tenant(make: Callable[[int], QuerySet[Any, Any]]) -> Callable[[], str]:
    """The statement of what `make` would ask of a tenant, whose key is its one value, `tenant`.

    It is made once: the ORM takes longer to write a statement with subqueries than the database to answer it.
    """

    @cache
    @wraps(make)
    def statement() -> str:
        sql, values = make(_TENANT).query.sql_with_params()
        with connection.cursor() as cursor:
            text: str = cursor.mogrify(sql, values)
        return text.replace("%", "%%").replace(str(_TENANT), "%(tenant)s")

    return statement


_TENANT = -(2**62)  # stands for the key in the statement that is made
