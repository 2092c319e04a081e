"""Files of sealed months that are fetched from a store: while no transaction is open, which would hold back others.

Which of them are needed is often known within the transaction alone. So where one is not here, what was begun is
undone, the file is fetched, and it is done again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from typing import ParamSpec, TypeVar

from django.db import connection

P = ParamSpec("P")
T = TypeVar("T")


class FilesNeededError(BaseException):
    """Files are not here, and no transaction was open as the work began: `with_files` does it again.

    No failure, which who does one thing after another would note, and go on.
    """

    def __init__(self, fetch: Callable[[], Exception | None]) -> None:
        super().__init__()
        self.fetch = fetch


@dataclass(slots=True)
class _Fetches:
    """Of one piece of work: which files were asked for, and why the store did not answer."""

    asked: set[str] = field(default_factory=set)
    failure: Exception | None = None


_fetches: ContextVar[_Fetches | None] = ContextVar("_fetches", default=None)


def with_files(work: Callable[[], T]) -> T:
    """What `work` returns, which may be called several times: what it did in its transactions is undone before.

    Within a transaction it is called once, and it is for whoever began that to do all again.
    """
    if connection.in_atomic_block:
        return work()
    fetches = _Fetches()
    token = _fetches.set(fetches)
    try:
        while True:
            try:
                return work()
            except FilesNeededError as needed:
                fetches.failure = needed.fetch()  # which the work says where it needs the files
    finally:
        _fetches.reset(token)


def files_fetched_first(function: Callable[P, T]) -> Callable[P, T]:
    """The same of a function whose transactions it opens itself."""

    @wraps(function)
    def repeatable(*args: P.args, **kwargs: P.kwargs) -> T:
        return with_files(lambda: function(*args, **kwargs))

    return repeatable


def fetch_first(digest: str, fetch: Callable[[], Exception | None]) -> None:
    """Have a file with this digest fetched before the transaction in which it is needed, once.

    `fetch` returns what it failed by, which is raised here then; and FilesNeededError is, for `with_files`. Returns
    where nobody does the work again, or it was asked for already: it is fetched here and now then.
    """
    fetches = _fetches.get()
    if fetches is None:
        return
    if fetches.failure is not None:
        raise fetches.failure
    if digest not in fetches.asked:
        fetches.asked.add(digest)
        raise FilesNeededError(fetch)
