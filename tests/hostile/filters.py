"""Every filter by tenant taken out of every statement, as if somebody had forgotten all of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections

_VALUE = r"(?:%s|%\(\w+\)s|\$\d+|\d+)"
_NAME = r'(?:"?\w+"?\.)?"?(?:tenant_id|payer_id)"?'
_FILTERS = (
    (re.compile(rf"{_NAME} = ANY\s*\(({_VALUE})\)"), r"(\1)::bigint[] IS NOT NULL"),
    (re.compile(rf"{_NAME} IN \(({_VALUE}(?:, {_VALUE})*)\)"), r"(ARRAY[\1])::bigint[] IS NOT NULL"),
    (re.compile(rf"{_NAME} = ({_VALUE})(?:::bigint)?"), r"(\1)::bigint IS NOT NULL"),
)


@dataclass
class Removed:
    count: int = 0


def without_filters(sql: str) -> tuple[str, int]:
    """The statement with conditions that hold for every tenant, and how many it had for one."""
    count = 0
    for pattern, anybody in _FILTERS:
        sql, replacements = pattern.subn(anybody, sql)
        count += replacements
    return sql, count


@contextmanager
def filters_removed(*aliases: str) -> Iterator[Removed]:
    """Whoever may open a page is still asked: by the address and the person, which are no filters of rows."""
    removed = Removed()

    def forgotten(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        text = sql.decode() if isinstance(sql, bytes) else sql
        command = text.lstrip().upper()
        if command.startswith("INSERT"):  # names what it writes
            return execute(sql, params, many, context)
        head, where, filters = text.partition(" WHERE ") if command.startswith("UPDATE") else ("", "", text)
        filters, count = without_filters(filters)  # an UPDATE names what it writes before its filters
        text = head + where + filters
        removed.count += count
        return execute(text, params, many, context)

    with ExitStack() as stack:
        for alias in aliases or (DEFAULT_DB_ALIAS,):
            stack.enter_context(connections[alias].execute_wrapper(forgotten))
        yield removed
