"""One pull over a cluster's accounting: windows of ended rows, then what is open, then the nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from msgspec.structs import replace

from clusters.connectors.base import BadRow, ConnectorError, UsageFact
from clusters.connectors.http import TooLargeError, TooSlowError
from clusters.connectors.mig import OwnShares
from clusters.connectors.slurm import access, decode, resources, rows
from clusters.connectors.slurm.faults import MissingError, UnreadableFormError
from clusters.connectors.slurm.windows import Windows, flags_agree, window_params
from portal.excerpt import excerpt

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterator

    from clusters.connectors.base import Reading, Row
    from clusters.connectors.slurm.rest import Api, SlurmRest

GRACE = 60  # seconds: rows reach slurmdbd some seconds late, so the last minute proves nothing
AHEAD = 60  # seconds beyond our clock that are asked for, should slurmrestd's be ahead
BEHIND = 600  # seconds: a start that slurmdbd has not by then waits in slurmctld's queue
LATELY = 300  # seconds: an `until` no older than this means "now"
ASK_MOST = 500  # rows that are asked for one by one in a pull
REMEMBER = 200_000  # keys of open rows that were seen and not given yet
RUNS = frozenset({"RUNNING", "SUSPENDED"})
ENDED = frozenset(
    {"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE",
     "OUT_OF_MEMORY", "PENDING"}
)  # fmt: skip

_LIVE_JOB: decode.Reader[decode.LiveJob] = decode.Reader(decode.LiveJob)


class UsageFetch:
    """The rows of one pull, in `rows`; `reading` is complete when it ends."""

    def __init__(
        self,
        rest: SlurmRest,
        reading: Reading,
        *,
        cluster: str,
        clock: Callable[[], int],
        shares: OwnShares = (),
    ) -> None:
        self.shares = shares
        self.rest = rest
        self.reading = reading
        self.cluster = cluster
        self.clock = clock
        self.reader = rows.RowReader(reading, cluster=cluster, shares=shares)
        self.left: set[str] = set()  # keys that were asked after, or seen while open, and not given yet
        self.running: list[UsageFact] = []  # open and started, for slurmctld to confirm
        self.open_numbers: set[int] = set()  # numbers of the jobs that slurmdbd told as running
        self.began: dict[int, int] = {}  # by number, the start of what runs by slurmctld
        self.live = False  # whether the pull reaches the present, or ends in the past
        self.requested_at = 0  # our clock as the last window was asked for

    def rows(self, *, since: int, until: int, open_keys: Collection[str]) -> Iterator[Row]:
        """As `Connector.usage`."""
        self._introduce(self.rest.discover())
        self.reading.clocks = self.rest.clocks()
        self.left = set(open_keys)
        self.live = until > self.clock() - LATELY
        yield from self._windows(since, until)
        self._check_cluster()
        yield from self._one_by_one()
        confirmed = yield from self._open()
        if confirmed:
            if self.live:
                self._nodes()
            if not self._behind(until):
                self.reading.complete_through = min(until, self.requested_at - GRACE)
        self.reader.finish()

    def _introduce(self, api: Api) -> None:
        if self.cluster and api.cluster and api.cluster != self.cluster:
            raise _other_cluster(api.cluster, self.cluster)
        if api.cluster and not self.cluster:
            self.reader.names.add(api.cluster)
        access.require_operator(self.rest)
        if api.is_supported:
            return
        try:
            readable = flags_agree(self.rest, now=self.clock())
        except UnreadableFormError:
            readable = False
        if not readable:
            raise ConnectorError("slurm-too-new", retry=False, version=api.version)
        self.reading.notes.append(
            f"Slurm's API {api.version} is newer than this release knows; it is read like the newest known one, and "
            "a small window agreed. Update ClusterTab soon."
        )

    def _windows(self, since: int, until: int) -> Iterator[Row]:
        windows = Windows()
        begin = since
        while True:
            now = self.clock()
            goal = max(now, begin) if self.live else until
            last = begin + windows.length >= goal
            end = begin + windows.length
            if last:
                end = max(goal + AHEAD, begin + 1) if self.live else max(until, begin + 1)
            self.requested_at = now
            try:
                ended, number, spent, batch = self._window(begin, end, last=last)
            except (TooLargeError, TooSlowError) as error:
                windows.length = min(windows.length, max(goal - begin, 1))
                if windows.shrink():
                    continue
                if isinstance(error, TooLargeError):
                    raise _open_everywhere(error) from None
                raise
            yield from batch
            if last:
                return
            windows.learn(ended=ended, rows=number, spent=spent)
            begin = end

    def _window(self, begin: int, end: int, *, last: bool) -> tuple[int, int, int, list[Row]]:
        """How many rows ended within, how many came, the milliseconds it took, and the rows to give now.

        A row belongs to the window in which it ends; the last one has all the others.
        """
        value, answer = self.rest.read(
            self.rest.slurmdb("jobs"),
            decode.jobs,
            key="jobs",
            params=window_params(self.rest.api, since=begin, until=end),
        )
        jobs = value.jobs or []
        unread = value.unread if isinstance(value, decode.PartOfJobs) else ()
        result: list[Row] = [self.reader.unread(raw, why) for raw, why in unread]
        ended = 0
        for job in jobs:
            at = rows.ends(job)
            within = at is not None and at < end
            ended += within
            if within or last:
                result.extend(self._row_now(job))
            elif len(self.left) < REMEMBER and self.reader.is_ours(job):
                self.left.add(rows.key(job) or "")
        self._check_names()
        return ended, len(jobs), answer.spent, result

    def _row_now(self, job: decode.Job) -> Iterator[Row]:
        """The row to give now; one that runs is kept back until slurmctld has confirmed it."""
        row = self.reader.read(job)
        if row is None:
            return
        self.left.discard(row.source_key)
        if rows.ends(job) is None and (isinstance(row, BadRow) or row.started is not None):
            self.open_numbers.add(decode.whole(job.job_id) or 0)
        if isinstance(row, UsageFact) and row.started is not None and row.ended is None:
            self.running.append(row)
        else:
            yield row

    def _check_cluster(self) -> None:
        if self.reader.foreign and not self.reader.own_rows:
            raise _other_cluster(min(self.reader.foreign), self.cluster)

    def _check_names(self) -> None:
        """Before rows are given: those of two clusters may have the same keys, and other owners."""
        names = sorted(self.reader.names)
        if len(names) > 1:
            raise ConnectorError(
                "slurm-rows-of-several-clusters", retry=False, names=excerpt(", ".join(names))
            )

    def _one_by_one(self) -> Iterator[Row]:
        """Rows that no window had: held back from accounting until after their end, moved in time, or gone."""
        now = self.clock()  # another order in each pull, so that each has its turn
        keys = sorted(self.left, key=lambda key: crc32(f"{now} {key}".encode()))
        if len(keys) > ASK_MOST:
            self.reading.unasked += keys[ASK_MOST:]
            self.reading.notes.append(
                f"{len(self.left)} open rows came in no window; {ASK_MOST} of them were asked for one by one, the "
                "others follow in the next passes."
            )
        for place, key in enumerate(keys[:ASK_MOST]):
            try:
                result = list(self._of_key(key))
            except (TooLargeError, TooSlowError) as error:  # the number of an array brings all of its tasks
                self.reading.unasked += keys[place:ASK_MOST]
                self.reading.notes.append(
                    f"Job {key.partition('@')[0]}, which is in no window, was not read: {error}"
                )
                return
            self._check_names()
            if key and key in self.left:
                self.reading.missing.append(key)
            yield from result

    def _of_key(self, key: str) -> Iterator[Row]:
        """The row of a job id that was submitted then: ids are used again."""
        number = key.partition("@")[0]
        if not number.isdecimal():
            return
        try:
            value, _ = self.rest.read(self.rest.slurmdb(f"job/{number}"), decode.jobs, key="jobs")
        except MissingError:
            return
        for job in value.jobs or ():
            if rows.key(job) == key:
                yield from self._row_now(job)

    def _open(self) -> Generator[Row, None, bool]:
        """Gives what runs, moved on only as far as slurmdbd says and slurmctld confirms. Returns whether it could."""
        try:
            live = self._live()
        except ConnectorError as error:
            self.reading.notes.append(
                f"Running jobs were not moved on, and the watermark stays, since nothing records how they end: {error}"
            )
            yield from map(rows.unmoved, self.running)
            return False
        latest: dict[int, int] = {}
        for fact in self.running:
            latest[_number(fact)] = max(latest.get(_number(fact), 0), fact.submitted or 0)
        unknown: list[UsageFact] = []
        stale: list[UsageFact] = []
        for fact in self.running:
            submitted, holds = live.get(_number(fact), (None, False))
            if submitted is None or submitted > (fact.submitted or 0):  # gone, or another job of the same id
                unknown.append(fact)
                holds = False
            elif (fact.submitted or 0) < latest[_number(fact)]:
                stale.append(fact)
                holds = False
            yield _seen_by(self.clock(), fact) if holds else rows.unmoved(fact)
        self._note_unknown(unknown)
        self._note_stale(stale)
        return True

    def _live(self) -> dict[int, tuple[int, bool]]:
        """What slurmctld has in memory: job id → submission, and whether it holds anything."""
        jobs: dict[int, tuple[int, bool]] = {}
        began: dict[int, int] = {}

        def keep(job: decode.LiveJob) -> None:
            number = decode.whole(job.job_id)
            if number:
                states = decode.words(job.job_state)
                holds = "COMPLETING" in states or not ENDED.intersection(states)
                jobs[number] = (decode.instant(job.submit_time) or 0, holds)
                if RUNS.intersection(states):
                    began[number] = decode.instant(job.start_time) or self.requested_at

        self.rest.read_jobs(self.rest.slurm("jobs"), _LIVE_JOB, keep)
        self.began.update(began)
        return jobs

    def _behind(self, until: int) -> bool:
        """Whether slurmctld could not tell slurmdbd all: then what ended meanwhile is missing too, and comes later
        with its true times, however old they are by then."""
        deadline = min(until, self.requested_at - BEHIND)
        late = {
            at: number
            for number, at in self.began.items()
            if at < deadline and number not in self.open_numbers
        }
        if late:
            self.reading.notes.append(
                f"Job {late[min(late)]} runs and slurmdbd has not been told so: the watermark stays, since ended jobs "
                "may be missing too. See the DBD agent queue in `sdiag`, and whether slurmctld reaches slurmdbd."
            )
        return bool(late)

    def _note_unknown(self, unknown: list[UsageFact]) -> None:
        if not unknown:
            return
        self.reading.missing.extend(fact.source_key for fact in unknown)
        shown = ", ".join(excerpt(fact.job_id) for fact in unknown[:10]) + (
            ", …" if len(unknown) > 10 else ""
        )
        jobs = "1 job is" if len(unknown) == 1 else f"{len(unknown)} jobs are"
        self.reading.notes.append(
            f"{jobs} open in the accounting database and unknown to slurmctld ({shown}), so nothing more is counted "
            "for them: end runaway jobs with `sacctmgr show runawayjobs`."
        )

    def _note_stale(self, stale: list[UsageFact]) -> None:
        """The end of such a row was lost when its job was resized or requeued; slurmctld has a job once."""
        if not stale:
            return
        self.reading.missing.extend(fact.source_key for fact in stale)
        shown = ", ".join(fact.source_key for fact in stale[:10]) + (", …" if len(stale) > 10 else "")
        self.reading.notes.append(
            "The accounting database has more than one open row of a job; only the latest goes on, and nothing more is "
            f"counted for the earlier ({shown}), whose end was lost: compare them with `sacct --duplicates`."
        )

    def _nodes(self) -> None:
        try:
            value, _ = self.rest.read(self.rest.slurm("nodes"), decode.nodes, key="nodes")
        except ConnectorError as error:
            self.reading.notes.append(f"The nodes could not be read: {error}")
            return
        self.reading.nodes = [
            seen for node in value.nodes or () for seen in resources.node_capacity(node, self.shares)
        ]


def _number(fact: UsageFact) -> int:
    return int(fact.source_key.partition("@")[0])


def _seen_by(now: int, fact: UsageFact) -> UsageFact:
    """No later than now: how long a run has lasted is told by slurmdbd's clock, which may be ahead."""
    if fact.started is None or fact.seen_until is None or fact.seen_until <= now:
        return fact
    return replace(fact, seen_until=max(now, fact.started + fact.suspended))


def _open_everywhere(error: TooLargeError) -> TooLargeError:
    return TooLargeError("slurm-open-jobs-too-large", retry=True, cause=str(error))


def _other_cluster(actual: str, expected: str) -> ConnectorError:
    return ConnectorError("slurm-other-cluster", retry=False, actual=actual, expected=expected)
