"""Pulling a live cluster: what its scheduler says since the watermark, pull by pull, one at a time.

The network is outside of every transaction; what a pull brought, its watermark, the nodes' state and the
flags of vanished runs are in the transaction of its last rows. So a worker may die anywhere: the next
pull goes on from the watermark.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import islice

from django.db import DatabaseError, transaction
from django.db.models import F

from billing.rating import engine, ingest
from clusters import capacity, incomplete_hours, open_runs, sources, telemetry, watermark
from clusters.connectors.base import Connector, ConnectorError, Reading, Row
from clusters.connectors.clocks import refuse_skew
from clusters.ledger import Stored
from clusters.models import Cluster, Connection, Pull
from portal.core import locks
from portal.core.locks import Work

PIECE = timedelta(hours=24)  # by how much one pull moves the watermark at most
OVERLAP = timedelta(minutes=15)  # that each pull reads again, for what reached the source late
DEEP_EVERY = timedelta(hours=1)  # how often the whole look-back is read again
FIRST_BACKOFF = timedelta(seconds=30)  # doubles with each failure
LONGEST_BACKOFF = timedelta(hours=1)
BURIED = (
    "The worker that ran this sync ended before it did. What it had stored stays; the next sync reads its "
    "window again."
)
UNTIMED = (
    "The source does not tell its time, so the watermark stays where it was: it may not pass the source's own time. "
    "Let the proxy before slurmrestd pass GET /slurm/*/diag, or send a Date header."
)

Progress = Callable[[Stored], None]
Connect = Callable[..., Connector]


class PullError(Exception):
    """The cluster cannot be pulled at all; the message says what to do. Nothing was changed."""


class PullOutcome(StrEnum):
    """How a pull ended; what it read stays in any case."""

    DONE = "done"
    BUSY = "already being pulled"
    FAILED = "failed"


@dataclass(slots=True)
class Pulled:
    """What became of a pull. `complete_through`: the cluster's watermark after it."""

    outcome: PullOutcome = PullOutcome.DONE
    stored: Stored = field(default_factory=Stored)
    steps: int = 0
    syncs: int = 0
    complete_through: datetime | None = None
    vanished: int = 0  # open runs that the source no longer knows, flagged now
    healed: int = 0  # flagged ones that came back
    notes: list[str] = field(default_factory=list)
    error: str = ""  # a sentence; what was read before it stays


def pull(
    cluster: Cluster,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    moment: datetime,
    progress: Progress | None = None,
    connect: Connect = sources.connect,
) -> Pulled:
    """Read the cluster from its watermark, less a look-back, to `moment`; or any window anew.

    Safe to run again, at once and after a kill: what is known changes nothing, and of two at the same time
    one says so and ends. A source that cannot be read is an outcome, kept with the pull; where no window was
    asked for, with the connection too, which is then put off. The watermark never moves backwards, nor over
    what was never read. `connect` makes the connector of a connection; `progress` gets the sum of all pulls
    so far. Raises PullError where there is no connection, or the window is none.
    """
    connection = Connection.objects.select_related("cluster").filter(cluster=cluster).first()
    if connection is None:
        raise PullError(
            f"{cluster.name} has no connection: describe one in a file for `apply`, or in the administration."
        )
    if since is not None and since >= (until or moment):
        raise PullError("The window ends before it begins.")
    with locks.alone(Work.PULLING, cluster.pk) as ours:
        if not ours:
            return Pulled(PullOutcome.BUSY, complete_through=_watermark(cluster))
        work = _Pull(connection, _Clock(moment), connect, progress or (lambda _: None))
        work.bury()
        return work.run(since, until)


class _Clock:
    """The present, counted on from the caller's moment."""

    def __init__(self, moment: datetime) -> None:
        self.moment = moment
        self.began = time.monotonic()

    def __call__(self) -> int:
        return int(self.moment.timestamp()) + int(time.monotonic() - self.began)

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self(), UTC)


@dataclass(frozen=True, slots=True)
class _Piece:
    """One pull: the window, and the open runs that are asked after."""

    since: datetime
    until: datetime
    asked: Collection[str] | None = None  # None: no question, since this window says nothing of now
    last: bool = False


class _Pull:
    """One pull at work, alone with its cluster."""

    def __init__(self, connection: Connection, clock: _Clock, connect: Connect, progress: Progress) -> None:
        self.connection = connection
        self.cluster = connection.cluster
        self.clock = clock
        self.connect = connect
        self.progress = progress
        self.pulled = Pulled()
        self.reading = Reading()

    def run(self, since: datetime | None, until: datetime | None) -> Pulled:
        scheduled = since is None and until is None
        deep = scheduled and self._deep_is_due()
        try:
            for piece in self._pieces(since, until, deep=deep):
                self._pass(piece)
        except ConnectorError as error:
            if scheduled:
                self._failed(str(error), retry=error.retry)
            self.pulled.outcome, self.pulled.error = PullOutcome.FAILED, str(error)
        except Exception as error:
            with suppress(DatabaseError):  # the first error is the one to tell of
                if scheduled:
                    self._failed(ingest.unforeseen(error), retry=True)
            raise
        else:
            if scheduled:
                self._succeeded(deep=deep)
                self._telemetry()
        self.pulled.complete_through = _watermark(self.cluster)
        return self.pulled

    def bury(self) -> None:
        """Nobody else pulls this cluster now, so a pull that is still said to run has died."""
        dead = Pull.objects.filter(cluster=self.cluster, outcome=Pull.Outcome.RUNNING, until__isnull=False)
        dead.update(outcome=Pull.Outcome.FAILED, ended_at=self.clock.now, error=BURIED)

    def _deep_is_due(self) -> bool:
        read_at = self.connection.deep_read_at
        return read_at is None or self.clock.now - read_at >= DEEP_EVERY

    def _pieces(self, since: datetime | None, until: datetime | None, *, deep: bool) -> Iterator[_Piece]:
        """Windows in order of time; `until` is looked up when its turn comes, since a catch-up lasts."""
        mark = _watermark(self.cluster)
        if since is None and (ahead := watermark.ahead(self.cluster.name, mark, moment=self.clock.now)):
            raise ConnectorError("watermark-ahead", retry=False, sentence=ahead.sentence)
        begin = since or self._beginning(mark, deep=deep)
        border = max(begin, mark) if since is None and mark is not None else begin
        while True:
            end = until or self.clock.now
            begin = min(begin, end - timedelta(minutes=1))
            border = border + PIECE
            if border < end:
                yield _Piece(begin, border)
                begin = border - OVERLAP
                continue
            open_keys = None if since or until else open_runs.open_keys(self.cluster, vanished=deep)
            yield _Piece(begin, end, open_keys, last=True)
            return

    def _beginning(self, mark: datetime | None, *, deep: bool) -> datetime:
        look_back = timedelta(hours=self.connection.look_back)
        first = self.connection.first_usage_from
        if mark is None:
            return first or self.clock.now - look_back
        begin = mark - (look_back if deep else OVERLAP)
        return min(max(begin, first), mark) if first else begin

    def _pass(self, piece: _Piece) -> None:
        before = self.pulled.stored
        self.reading = Reading()
        moves = self._joins(piece)
        result = ingest.ingest(
            cluster=self.cluster,
            rows=self._rows(piece),
            reading=self.reading,
            source=self.connection.address,
            moment=self.clock.now,
            live=ingest.Live(
                since=piece.since,
                until=piece.until,
                clock=self.clock,
                moves=moves,
                ending=lambda: self._ending(piece, moves=moves),
            ),
            progress=lambda stored: self.progress(before + stored),
        )
        self.pulled.stored = before + result.stored
        self.pulled.steps += result.steps
        self.pulled.syncs += 1
        self.pulled.notes += [note for note in self.reading.notes if note not in self.pulled.notes]

    def _joins(self, piece: _Piece) -> bool:
        """Whether nothing lies unread between the watermark and the window."""
        mark = _watermark(self.cluster)
        if mark is None:
            return piece.since <= self._beginning(None, deep=True)
        return piece.since <= mark

    def _rows(self, piece: _Piece) -> Iterator[Row]:
        """The connector is made anew for each pull, inside of it, so that what keeps it from being made
        is the pull's error too."""
        connector = self.connect(self.connection, clock=self.clock)
        rows = iter(
            connector.usage(
                since=int(piece.since.timestamp()),
                until=int(piece.until.timestamp()),
                open_keys=piece.asked or (),
            )
        )
        first = list(islice(rows, 1))  # with it the clocks are known
        if connector.reading.clocks is not None:
            refuse_skew(connector.reading.clocks, self.connection.address)
        yield from first
        yield from rows
        for column in fields(Reading):
            setattr(self.reading, column.name, getattr(connector.reading, column.name))
        self._bound_watermark()
        Connection.objects.filter(pk=self.connection.pk).update(
            api_version=getattr(connector, "api", "")[:20], release=getattr(connector, "release", "")[:40]
        )

    def _bound_watermark(self) -> None:
        """What the pull proves never passes the source's own time; where that is not told, it proves nothing."""
        proved, clocks = self.reading.complete_through, self.reading.clocks
        if proved is None:
            return
        if clocks is None:
            self._note(UNTIMED)
        self.reading.complete_through = None if clocks is None else min(proved, self.clock() + clocks.apart)

    def _ending(self, piece: _Piece, *, moves: bool) -> None:
        """In the transaction of the last rows."""
        reading, moment = self.reading, self.clock.now
        if not moves:
            self._note(
                "The watermark stays where it was: something between it and this window has not been read."
            )
        if piece.last and reading.nodes is not None:
            try:
                capacity.observe(self.cluster, reading.nodes, moment)
            except capacity.CapacityError as error:
                self._note(str(error))
        if reading.complete_through is not None:
            incomplete_hours.settle(
                self.cluster,
                reading.incomplete,
                since=int(piece.since.timestamp()),
                until=reading.complete_through,
            )
        if piece.asked is not None:
            self.pulled.vanished, self.pulled.healed = open_runs.settle(
                cluster=self.cluster,
                keys=set(piece.asked).difference(reading.unasked),
                missing=reading.missing,
                moment=moment,
            )

    def _note(self, sentence: str) -> None:
        if sentence not in self.reading.notes:  # the transaction may be tried again
            self.reading.notes.append(sentence)

    def _succeeded(self, *, deep: bool) -> None:
        now = self.clock.now
        due_at = max(self.clock.moment + timedelta(seconds=self.connection.every), now)
        values = {"deep_read_at": self.clock.moment} if deep else {}
        Connection.objects.filter(pk=self.connection.pk).update(
            failures=0, last_error="", last_success_at=now, next_pull_at=due_at, **values
        )

    def _telemetry(self) -> None:
        """How busy the runs were, where another source tells it: nothing of the pull depends on that."""
        read = telemetry.read_due(self.connection, clock=self.clock, stored=engine.rate_utilised)
        if read is not None and read.error:
            self.pulled.notes.append(f"How busy its jobs were could not be read: {read.error}")

    def _failed(self, sentence: str, *, retry: bool) -> None:
        """What tries alone cannot mend is tried each hour all the same: it may be mended over there."""
        with transaction.atomic():
            row = Connection.objects.select_for_update(no_key=True).get(pk=self.connection.pk)
            wait = backoff(row.failures + 1) if retry else LONGEST_BACKOFF
            Connection.objects.filter(pk=row.pk).update(
                failures=F("failures") + 1, last_error=sentence, next_pull_at=self.clock.now + wait
            )


def backoff(failures: int) -> timedelta:
    """How long to wait after that many failures in a row: 30 s, 1 min, 2 min ... one hour."""
    return min(FIRST_BACKOFF * (1 << min(failures - 1, 16)), LONGEST_BACKOFF)


def _watermark(cluster: Cluster) -> datetime | None:
    return Cluster.objects.values_list("complete_through", flat=True).get(pk=cluster.pk)
