"""Accounting logs of PBS Professional, OpenPBS and Torque. docs/reference/accounting-logs.md is their page.

The letters of the records are those of OpenPBS' `acct.h`. A run begins by S, and ends by E, by R (it goes back to the
queue) or by A. Since the server writes each end, a run without one in the file still held its resources when the last
record was written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from clusters.connectors.accounting.log import LogExport, Notes, loose_number, open_log, prove, whole_number
from clusters.connectors.accounting.pbs_resources import held
from clusters.connectors.base import BadRow, Reading, Row, UnreadableError, UsageFact
from clusters.connectors.mig import OwnShares
from clusters.connectors.sacct.fields import duration
from clusters.connectors.sacct.times import Clock
from portal.excerpt import excerpt, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# What grep puts before a line of several files is the day that the file is named after.
_RECORD = re.compile(
    r"(?:\d{8}:)?(\d\d)/(\d\d)/(\d{4}) (\d\d:\d\d:\d\d)(?:\.\d+)?;([A-Za-z]);([^;]+);(.*)", re.ASCII
)
_PAIR = re.compile(r'([A-Za-z][\w.]*)=("[^"]*"|\S*)')
_ARRAY = re.compile(r"\d+\[\](?:\.|$)", re.ASCII)
_NO_PROJECT = frozenset({"", "_pbs_project_default"})
STATES = {"E": "ENDED", "R": "REQUEUED", "A": "ABORTED"}
"""By the record that ends a run, the word that it gets: PBS has none of its own."""
_PHASES = frozenset("uce")
UNEXPLAINED = 60
"""Seconds by which a run may be longer than PBS measured it before it counts as suspended in an earlier file."""


@dataclass(slots=True)
class _Run:
    """A run that has begun in this file and not ended yet."""

    values: Mapping[str, str]
    raw: str


@dataclass(slots=True)
class _Suspensions:
    """When a job was suspended, in this file. `readable` is false where a border is in another file or in doubt."""

    seconds: int = 0
    since: int | None = None
    readable: bool = True


@dataclass(slots=True)
class PbsReader:
    """Reads one log; the zone is that of the server's clock."""

    reading: Reading
    zone: ZoneInfo
    shares: OwnShares = ()
    source_key: str = ""
    runs: dict[str, _Run] = field(default_factory=dict)
    suspensions: dict[str, _Suspensions] = field(default_factory=dict)
    phased: set[str] = field(default_factory=set)
    begins: int | None = None  # the earliest instant of the records so far
    notes: Notes = field(default_factory=Notes)
    clock: Clock = field(init=False)

    def __post_init__(self) -> None:
        self.clock = Clock(self.zone)

    def read(self, text: str) -> Row | None:
        match = _RECORD.fullmatch(text.rstrip())
        if match is None:
            raise UnreadableError("log-record", scheduler="PBS", text=quoted(text))
        month, day, year, time, letter, job, message = match.groups()
        stamp = f"{year}-{month}-{day}T{time}"
        if letter in "SERA" and not _ARRAY.match(job):
            values = {name: value.strip('"') for name, value in _PAIR.findall(message)}
            return self._begin(job, values, text) if letter == "S" else self._end(letter, job, values, stamp)
        self.reading.steps += 1
        if letter in "zr":
            self._suspend(letter, job, stamp)
        elif letter in _PHASES:
            self.phased.add(job)
        return None

    def rest(self) -> Iterator[Row]:
        seen = self.reading.proves_until or 0
        for job, run in self.runs.items():
            self.source_key = ""
            try:
                started = whole_number("start", run.values.get("start"))
                yield self._fact(job, run.values, started, None, "RUNNING", seen=max(seen, started))
            except UnreadableError as unreadable:
                yield BadRow(
                    code=unreadable.code, values=unreadable.values, raw=run.raw, source_key=self.source_key
                )
        self.notes.write(self.reading)

    def _begin(self, job: str, values: Mapping[str, str], text: str) -> Row | None:
        started = whole_number("start", values.get("start"))
        self._see(started)
        lost, self.runs[job] = self.runs.get(job), _Run(values, text)
        if lost is None or lost.values.get("start") == values.get("start"):
            return None
        self.suspensions.pop(job, None)
        key = self._key(job, lost.values, whole_number("start", lost.values.get("start")))
        return BadRow(code="pbs-run-without-end", values={"job": excerpt(job)}, raw=lost.raw, source_key=key)

    def _end(self, letter: str, job: str, values: Mapping[str, str], stamp: str) -> Row | None:
        begun = self.runs.pop(job, None)
        if letter != "E" and "start" not in values:
            if begun is None:  # it waited
                self.reading.steps += 1
                return None
            values = {**begun.values, **values}
        started = whole_number("start", values.get("start"))
        ended = (
            self._stamp(stamp)
            if letter != "E" and "end" not in values
            else whole_number("end", values.get("end"))
        )
        fact = self._fact(job, values, started, ended, STATES[letter])
        self.suspensions.pop(job, None)
        self._see(ended)
        measured = _limit(values.get("resources_used.walltime", ""))
        began_before = begun is None and letter == "E" and started < min(self.begins or ended, ended)
        if measured and began_before and ended - started - measured >= UNEXPLAINED:
            raise UnreadableError("pbs-suspension")  # its records z and r would be in an earlier file
        if measured is not None and measured + fact.suspended != ended - started:
            self.notes.count("walltime")
        return fact

    def _see(self, moment: int) -> None:
        prove(self.reading, moment)
        self.begins = moment if self.begins is None else min(self.begins, moment)

    def _fact(
        self,
        job: str,
        values: Mapping[str, str],
        started: int,
        ended: int | None,
        state: str,
        seen: int | None = None,
    ) -> UsageFact:
        submitted = whole_number("ctime", values.get("ctime"))
        self.source_key = self._key(job, values, started)
        suspended = self._suspended(job, seen if ended is None else ended)
        if job in self.phased:
            raise UnreadableError("pbs-phases")
        run = held(values, self.shares)
        if run.several_models:
            self.notes.count("gpu-models")
        account, project = values.get("account", ""), values.get("project", "")
        return UsageFact(
            source_key=self.source_key,
            account=account or ("" if project in _NO_PROJECT else project) or values.get("group", ""),
            user=values.get("user", ""),
            job_id=job,
            name=values.get("jobname", ""),
            queue=values.get("queue", ""),
            gpus=run.gpus,
            gpu_model=run.gpu.model if run.gpus else "",
            mig_profile=run.gpu.profile if run.gpus else "",
            gpu_share=run.gpu.share if run.gpus else (1, 1),
            cpu_milli=run.cpus * 1000,
            memory_mib=run.memory_mib,
            nodes=run.node_count,
            node_list=",".join(run.nodes),
            requested=values.get("Resource_List.select") or values.get("Resource_List.nodes", ""),
            time_limit=_limit(values.get("Resource_List.walltime", "")),
            submitted=submitted,
            eligible=loose_number(values.get("etime", "")),
            started=started,
            ended=ended,
            seen_until=seen,
            suspended=suspended,
            state=state,
            exit_code=values.get("Exit_status", ""),
        )

    def _key(self, job: str, values: Mapping[str, str], started: int) -> str:
        """A run that went back to the queue keeps its submission: its start tells it from the next one."""
        return f"{job}#{started}@{whole_number('ctime', values.get('ctime'))}"

    def _suspend(self, letter: str, job: str, stamp: str) -> None:
        of = self.suspensions.setdefault(job, _Suspensions())
        moments = self.clock.moments("Time", stamp)
        if len(moments) != 1 or (letter == "z") != (of.since is None):
            of.readable = False
            return
        self._see(moments[0])
        if of.since is None:
            of.since = moments[0]
        else:
            of.seconds, of.since = of.seconds + moments[0] - of.since, None

    def _suspended(self, job: str, until: int | None) -> int:
        of = self.suspensions.get(job, _Suspensions())
        if not of.readable:
            raise UnreadableError("pbs-suspension")
        return of.seconds + (max((until or 0) - of.since, 0) if of.since is not None else 0)

    def _stamp(self, stamp: str) -> int:
        moments = self.clock.moments("Time", stamp)
        if len(moments) != 1:
            raise UnreadableError("clock-change", times=stamp)
        return moments[0]


def _limit(text: str) -> int | None:
    try:
        return loose_number(text) or duration("walltime", text)
    except UnreadableError:
        return None


def open_export(path: Path, *, zone: ZoneInfo, shares: OwnShares = ()) -> LogExport:
    """A log that a PBS server wrote, one file a day or several joined in their order. Raises `ConnectorError`."""

    def make_reader(reading: Reading) -> PbsReader:
        return PbsReader(reading, zone, shares)

    return open_log(
        path,
        scheduler="PBS",
        is_record=lambda text: _RECORD.fullmatch(text.rstrip()) is not None,
        make_reader=make_reader,
    )
