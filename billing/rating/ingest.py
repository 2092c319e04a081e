"""Usage in, rated in the same commit: what every import and pull runs through."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from django.db import DatabaseError, OperationalError, connection, transaction
from psycopg.errors import DeadlockDetected

from billing.catalog import billing_periods
from billing.rating import engine
from clusters import absent_records, ledger, meters, utilisation, validation
from clusters.connectors.base import (
    BadRow,
    BusyHour,
    ConnectorError,
    EnergyHour,
    Reading,
    Row,
    UsageFact,
)
from clusters.energy import EnergySums
from clusters.ledger import Stored
from clusters.models import Cluster, Connection, Pull, Quarantined
from clusters.month_file_fetches import with_files
from portal.core.events import events
from portal.core.events.models import EventType

CUT_OFF = frozenset({"unfinished", "truncated"})  # codes of rows that stand at the end of a file that was cut
ATTEMPTS = 3  # at a batch that meets a deadlock
BATCH = 10_000  # rows a transaction, as many as are rated again at once; 5,000 cost a tenth more CPU
BATCH_TEXT = 8 << 20  # characters of text a transaction: what is no usage may be of any length

Progress = Callable[[Stored], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """What a pull over a live source stands on, beside its rows. Its proof is `Reading.complete_through`.

    `clock` gives the present epoch second: such a pull may last longer than a node's clock may be wrong.
    `moves`: the watermark may follow the proof; not where something before the window was never read.
    `ending` is called in the transaction of the last rows, when the reading is complete.
    """

    since: datetime
    until: datetime
    clock: Callable[[], int]
    moves: bool
    ending: Callable[[], None]


@dataclass(frozen=True, slots=True)
class IngestResult:
    """What a pull did. `as_of`: the watermark that it proved, None where it proved nothing."""

    stored: Stored
    steps: int
    as_of: datetime | None


def ingest(
    *,
    cluster: Cluster,
    rows: Iterable[Row],
    reading: Reading,
    source: str,
    moment: datetime,
    as_of: datetime | None = None,
    live: Live | None = None,
    progress: Progress | None = None,
) -> IngestResult:
    """Store and rate all rows in transactions of 10,000; the last one moves the watermark.

    Run again, or after a kill at any point, it stores what is missing and changes nothing else.
    `as_of` defaults to the latest moment that the accepted rows prove; of a `live` source the reading
    says it alone. What `rows` raises is kept as the pull's error and raised on; the batches before it
    stay, the watermark does not move.
    """
    window = {"since": live.since, "until": live.until} if live else {}
    pull = Pull.objects.create(cluster=cluster, source=source, started_at=moment, **window)
    work = _Pass(pull, reading, live, progress or (lambda _: None))
    try:
        with absent_records.batches():
            return work.do(rows, as_of=as_of)
    except BaseException as error:
        with suppress(DatabaseError):  # the first error is the one to tell of
            Pull.objects.filter(pk=pull.pk).update(
                outcome=Pull.Outcome.FAILED, ended_at=work.now, error=work.sentence(error)
            )
        raise


@dataclass(frozen=True, slots=True)
class _Pass:
    """One pull at work."""

    pull: Pull
    reading: Reading
    live: Live | None
    progress: Progress

    @property
    def now(self) -> datetime:
        """The clock where the source is live; a file's pull has one moment."""
        return datetime.fromtimestamp(self.live.clock(), UTC) if self.live else self.pull.started_at

    def sentence(self, error: BaseException) -> str:
        """For the operator. What nobody foresaw may hold anything, of a live source also a secret."""
        if self.live is not None and not isinstance(error, ConnectorError):
            return unforeseen(error)
        return str(error) or type(error).__name__

    def do(self, rows: Iterable[Row], *, as_of: datetime | None) -> IngestResult:
        total = Stored()
        proved = _Proof()
        energy = EnergySums.of(self.pull.cluster)
        marks = billing_periods.marks() if self.live is not None else None
        for batch, last in _batches(rows):
            sifted = proved.sift(batch, now=int(self.now.timestamp()))
            if energy is not None:
                sifted.add_sums(energy)
            if last:
                self.reading.notes += energy.notes() if energy is not None else ()
                as_of = self._proven(proved, as_of)
            done = _Done(as_of, self._end) if last else None
            store = partial(
                _store, self.pull, sifted, total, steps=self.reading.steps, done=done, marks=marks
            )
            total = with_files(store)
            self.progress(total)
        return IngestResult(total, self.reading.steps, as_of)

    def _proven(self, proved: _Proof, as_of: datetime | None) -> datetime | None:
        if self.live is not None:
            complete_through = self.reading.complete_through if self.live.moves else None
            return datetime.fromtimestamp(complete_through, UTC) if complete_through is not None else None
        if as_of is None and Connection.objects.filter(cluster=self.pull.cluster, enabled=True).exists():
            self.reading.notes.append(PULLED)
            return None
        if as_of is None and proved.torn:
            self.reading.notes.append(TORN)
        proves = proved.as_of if as_of is None else as_of
        # A node's clock may be ahead of ours: no watermark passes the moment of the import.
        return None if proves is None else min(proves, self.pull.started_at)

    def _end(self, stored: Stored) -> None:
        if self.live is not None:
            self.live.ending()
            notes = "\n".join([*self.reading.notes, *stored.utilisation.sentences()])
            Pull.objects.filter(pk=self.pull.pk).update(ended_at=self.now, notes=notes)


def unforeseen(error: BaseException) -> str:
    """A sentence for what failed on our side, without the error's own text."""
    return f"Something failed here, not at the cluster ({type(error).__name__}); the worker's log says what."


PULLED = (
    "The cluster is pulled as well, so the watermark stays where it was: what lies between it and this file may not "
    "have been read. Say with --as-of how far all was."
)
TORN = (
    "The file ends in a torn line, so what it proves is not known and the watermark stays where it was: "
    "export it again, or say with --as-of how far it reaches."
)


@dataclass(frozen=True, slots=True)
class _Done:
    """The pull ends with this batch, having proved so much; `end` belongs into the same transaction."""

    as_of: datetime | None
    end: Callable[[Stored], None]


@dataclass(frozen=True, slots=True)
class _Sifted:
    """One batch by what its rows are: those that can be true, those that cannot, and what tells of either."""

    facts: list[UsageFact] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)
    hours: list[BusyHour] = field(default_factory=list)
    energy: list[EnergyHour] = field(default_factory=list)
    sums: list[UsageFact] = field(default_factory=list)

    def add_sums(self, energy: EnergySums) -> None:
        """What was measured of these runs and hours."""
        self.sums.extend([*energy.of_runs(self.facts), *energy.of_hours(self.energy)])


def _store(
    pull: Pull,
    batch: _Sifted,
    before: Stored,
    *,
    steps: int,
    done: _Done | None,
    marks: list[int] | None,
) -> Stored:
    """One batch in one transaction; chosen as a deadlock's victim, it is tried again."""
    attempt = 1
    while True:
        try:
            with transaction.atomic():
                ledger.lock(pull.cluster)
                meters.hold([*batch.facts, *batch.sums], moment=pull.started_at)
                stored = ledger.store(
                    cluster=pull.cluster,
                    facts=[*batch.facts, *batch.sums] if batch.sums else batch.facts,
                    bad=batch.bad,
                    source=pull.source,
                    moment=pull.started_at,
                    marks=marks,
                )
                hour_counts = utilisation.store(cluster=pull.cluster, hours=batch.hours)
                total = before + stored + Stored(utilisation=hour_counts)
                if batch.facts or batch.sums:
                    engine.rate_touched()
                if hour_counts.changed:
                    engine.rate_utilised()
                if done is None:
                    ledger.record(pull=pull, stored=total, steps=steps)
                else:
                    ledger.finish(
                        cluster=pull.cluster,
                        pull=pull,
                        stored=total,
                        steps=steps,
                        as_of=done.as_of,
                        moment=pull.started_at,
                    )
                    done.end(total)
                    _record_quarantined(pull, total)
            return total
        except OperationalError as error:
            inner = connection.in_atomic_block
            if inner or attempt == ATTEMPTS or not isinstance(error.__cause__, DeadlockDetected):
                raise
            attempt += 1


def _record_quarantined(pull: Pull, stored: Stored) -> None:
    """That it set aside rows which were not there before, once a pull: a live source is read again and again."""
    if not stored.quarantined:
        return
    fresh = Quarantined.objects.filter(cluster=pull.cluster_id, first_seen=pull.started_at)
    if fresh.exists():
        events.record(
            EventType.USAGE_QUARANTINED, kind="clu", key=pull.cluster_id, state="quarantined", tenant=None
        )


class _Proof:
    """Sifts what can be true from what cannot, and remembers how far the true rows reach."""

    def __init__(self) -> None:
        self.until = 0
        self.torn = False  # the newest row was cut off: there may have been more behind it

    @property
    def as_of(self) -> datetime | None:
        return datetime.fromtimestamp(self.until, UTC) if self.until and not self.torn else None

    def sift(self, rows: Iterable[Row], *, now: int) -> _Sifted:
        sifted = _Sifted()
        facts, bad = sifted.facts, sifted.bad
        row: Row | None = None
        until = self.until
        for row in rows:
            if isinstance(row, UsageFact):  # the most by far
                if (refused := validation.refuse(row, now=now)) is not None:
                    bad.append(refused)
                    continue
                facts.append(row)
                reaches = row.ended or row.seen_until or 0
                if reaches > until:
                    until = reaches
            elif isinstance(row, BadRow):
                bad.append(row)
            elif isinstance(row, BusyHour):
                sifted.hours.append(row)
            else:
                sifted.energy.append(row)
        self.until = until
        if row is not None:
            self.torn = isinstance(row, BadRow) and row.code in CUT_OFF
        return sifted


def _batches(rows: Iterable[Row]) -> Iterator[tuple[list[Row], bool]]:
    """Batches of BATCH rows or BATCH_TEXT, each with whether it is the last; one empty batch for no rows at all."""
    batch: list[Row] = []
    size = 0
    for row in rows:
        if len(batch) == BATCH or size > BATCH_TEXT:
            yield batch, False
            batch, size = [], 0
        batch.append(row)
        if isinstance(row, UsageFact):
            size += len(row.name) + len(row.node_list)  # of any length
        elif isinstance(row, BadRow):
            size += len(row.raw)
    yield batch, True
