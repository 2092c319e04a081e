"""Reading pages and reports from a streaming replica, where one is set: `DATABASE_REPLICA_URL`.

Within `read` the replica's connection stands in place of the primary's, so that each statement, transaction and scope
of a tenant goes there, however it is written. What only the primary can answer is read there again: a replica writes
nothing, so that nothing has happened. Reads go to the primary while the replica is away or late, and a person's own
until it has replayed what that person changed last.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import structlog
from django.conf import settings
from django.core.cache import cache
from django.db import (
    DEFAULT_DB_ALIAS,
    Error,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    connections,
)
from django.http import Http404, HttpRequest, HttpResponseBase
from psycopg.errors import QueryCanceled

T = TypeVar("T")

REPLICA = "replica"  # its alias in `DATABASES`
EVERY = 1  # seconds between two looks of a process at the replica
PAUSE = 5  # seconds until it looks again at one that does not answer
READS = frozenset({"GET", "HEAD", "OPTIONS"})
# A `ProgrammingError` is a column of a migration that has not been replayed.
UNANSWERED = (OperationalError, InternalError, NotSupportedError, ProgrammingError)
# How far the log is written, before anybody looks at how far it is replayed: what is equal then is not late. The
# clock is the primary's, as that of the commits which are replayed.
_PRIMARY = """
SELECT system_identifier, ('x' || left(pg_walfile_name(pg_current_wal_flush_lsn()), 8))::bit(32)::int,
       pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0')::bigint, clock_timestamp()
  FROM pg_control_system()
"""
# Its timeline as it is on its disk: that is written after the change of it has been replayed.
_STANDBY = """
SELECT pg_is_in_recovery(), system_identifier, greatest(timeline_id, min_recovery_end_timeline),
       pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0')::bigint, pg_last_xact_replay_timestamp()
  FROM pg_control_system(), pg_control_checkpoint(), pg_control_recovery()
"""
_CHANGE = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"

log = structlog.get_logger("portal.replica")


class PrimaryNeededError(Exception):
    """What is read needs working tables, which a replica cannot have: within `read` the primary answers."""


@dataclass(frozen=True, slots=True)
class State:
    """The replica when it was looked at."""

    seen: float  # by the monotonic clock, in seconds
    replayed: int = 0  # bytes of the primary's log
    lag: float = float("inf")  # seconds: how old what it shows is at most, 0 where it has all
    trouble: str = ""

    @property
    def is_usable(self) -> bool:
        """Whether what it shows is not older than the setting allows."""
        age = time.monotonic() - self.seen
        return not self.trouble and self.lag + age <= settings.DATABASE_REPLICA_MAX_LAG


class Watch:
    """What this process knows of the replica. One thread looks, and the others do not wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        self._state, self._next = State(seen=0), 0.0
        self._written: deque[tuple[float, int]] = deque(
            maxlen=600
        )  # when, and how many bytes; not replayed yet
        self._covered = float("-inf")  # when the newest of those was written that has been replayed

    def doubt(self) -> None:
        """Look again before it is read again: it may have gone."""
        self._next = 0.0

    def state(self) -> State:
        """Of a second ago at most, where the replica answers."""
        if time.monotonic() >= self._next and self._lock.acquire(blocking=False):
            try:
                self._look()
            finally:
                self._lock.release()
        return self._state

    def look(self) -> State:
        """As it is now."""
        with self._lock:
            self._look()
        return self._state

    def _look(self) -> None:
        try:
            self._state = self._read_state()
        except Error as error:
            connections[REPLICA].close()
            self._state = _troubled(f"it does not answer: {error}")
        self._next = time.monotonic() + (PAUSE if self._state.trouble else EVERY)

    def _read_state(self) -> State:
        """Of two bounds of its age the nearer: the last change that it has, and when all that it has was written.

        The first alone grows where nothing is changed, the second where nobody looks.
        """
        began = time.monotonic()
        system, timeline, written, clock = _row(DEFAULT_DB_ALIAS, _PRIMARY)
        is_standby, of, follows, replayed, newest = _row(REPLICA, _STANDBY)
        trouble = ""
        if of != system:
            trouble = "it is a copy of another database"
        elif not is_standby:
            trouble = "it is no standby: it replays nothing"
        elif follows != timeline:
            trouble = f"it is on timeline {follows}, and the primary on {timeline}"
        elif replayed > written and replayed > _row(DEFAULT_DB_ALIAS, _PRIMARY)[2]:
            trouble = "it is ahead of the primary, which has been put back"
        if trouble:
            self._written.clear()  # positions of two histories do not compare
            self._covered = float("-inf")
            return _troubled(trouble)
        while self._written and self._written[0][1] <= replayed:
            self._covered, _ = self._written.popleft()
        self._written.append((began, written))
        if replayed >= written:
            return State(began, replayed, 0.0)
        return State(began, replayed, min(_age(newest, clock, began), began - self._covered))


def _age(newest: datetime | None, clock: datetime, began: float) -> float:
    """Seconds since the newest change that it has; without an end where the primary's clock has been set back since."""
    seconds = float("inf") if newest is None else (clock - newest).total_seconds()
    is_later = seconds < began - time.monotonic()  # than now, and not only than when the clock was read
    return float("inf") if is_later else max(seconds, 0.0)


watch = Watch()


def is_configured() -> bool:
    return REPLICA in connections.settings


def _row(alias: str, statement: str) -> tuple[Any, ...]:
    with connections[alias].cursor() as cursor:
        cursor.execute(statement)
        row: tuple[Any, ...] = cursor.fetchone()
    return row


def _troubled(reason: str) -> State:
    log.warning("the replica is not read", reason=reason.strip())
    return State(time.monotonic(), trouble=reason)


def read(work: Callable[[], T], *, person: int) -> T:
    """What `work` returns, which only reads, over the replica where it shows all that the person changed.

    Over the primary otherwise, and within a transaction. There `work` is called a second time where the replica
    cannot answer, or has not yet what is looked for.
    """
    if not (is_configured() and _shows_changes_of(person)):
        return work()
    try:
        with _in_place_of_primary():
            return work()
    except (Http404, PrimaryNeededError):
        pass
    except UNANSWERED as error:
        if isinstance(error.__cause__, QueryCanceled):  # it takes too long, and would there
            raise
        log.info("read again from the primary", error=str(error).strip())
        connections[REPLICA].close()
        watch.doubt()
    return work()


def ask_primary() -> None:
    """Before something is said not to be there. Raises PrimaryNeededError over the replica, which may lack it yet."""
    if connections[DEFAULT_DB_ALIAS].alias == REPLICA:
        raise PrimaryNeededError


def _shows_changes_of(person: int) -> bool:
    if connections[DEFAULT_DB_ALIAS].in_atomic_block:
        return False
    state = watch.state()
    return state.is_usable and state.replayed >= _last_change(person)


@contextmanager
def _in_place_of_primary() -> Iterator[None]:
    """Of this thread alone, as all connections are."""
    primary = connections[DEFAULT_DB_ALIAS]
    connections[DEFAULT_DB_ALIAS] = connections[REPLICA]
    try:
        yield
    finally:
        connections[DEFAULT_DB_ALIAS] = primary


def streamed(pieces: Generator[T, None, None]) -> Generator[T, None, None]:
    """The pieces of an answer, each made over the connection that is in use now, after `read` has returned."""
    is_reading = is_configured() and connections[DEFAULT_DB_ALIAS] is connections[REPLICA]
    return _over_replica(pieces) if is_reading else pieces


def _over_replica(pieces: Generator[T, None, None]) -> Generator[T, None, None]:
    """Between two pieces the primary's connection is in its place."""
    try:
        while True:
            with _in_place_of_primary():
                try:
                    piece = next(pieces)
                except StopIteration:
                    return
            yield piece
    finally:
        with _in_place_of_primary():
            pieces.close()


def remember_change(person: int) -> None:
    """The person has changed something, which has been committed: until the replica has it, they read the primary.

    Kept in Redis for as long as a replica that is read may be late. Where Redis is away, nobody reads the replica.
    """
    if not is_configured():
        return
    from redis import RedisError

    try:
        (written,) = _row(DEFAULT_DB_ALIAS, _CHANGE)
        cache.set(_key(person), written, timeout=settings.DATABASE_REPLICA_MAX_LAG + PAUSE)
    except (Error, RedisError, OSError):  # the change is made, whatever is read next
        log.warning("a change is not remembered", exc_info=True)


def _last_change(person: int) -> float:
    """Bytes of the primary's log; without an end where nobody knows."""
    from redis import RedisError

    try:
        return int(cache.get(_key(person), 0))
    except (RedisError, OSError):
        return float("inf")


def _key(person: int) -> str:
    return f"changed:{person}"


class OwnChanges:
    """Remembers who changed something. Stands after the middleware that finds out who is signed in."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        if request.method not in READS and request.user.pk is not None:
            remember_change(request.user.pk)
        return response
