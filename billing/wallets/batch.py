"""Doing something to many tenants or wallets, each on its own: one that fails holds up none behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import structlog
from django.db import connection

T = TypeVar("T")

log = structlog.get_logger("billing.wallets")


class LeftOverError(Exception):
    """Some were not done, and are tried again with the next round; the log has why of each."""


def run_isolated(items: Iterable[T], do: Callable[[T], object]) -> None:
    """Do it to one after the other, each in a transaction. Raises LeftOverError when all have been tried."""
    failed: list[tuple[T, Exception]] = []
    for one in items:
        try:
            do(one)
        except Exception as error:  # whatever it is, the others are done
            if not connection.is_usable():
                raise
            log.exception("not done for this one", what=str(one))
            failed.append((one, error))
    if failed:
        first, reason = failed[0]
        others = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
        raise LeftOverError(f"Left over: {first}{others}. {type(reason).__name__}: {reason}") from reason
