"""`lsb.acct` of IBM Spectrum LSF: its JOB_FINISH records. docs/reference/accounting-logs.md is their page.

The order of the fields is that of IBM's reference of lsb.acct for 10.1, but for three that real records of 9.1 and 10.1
write in another order: runLimit stands before options3, and each host of hostRusage has a sixth field. Releases append
fields, so what stands behind the project is read as far as a record goes. GPUs were not yet seen from a live source.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from clusters.connectors.accounting.log import (
    LogExport,
    Notes,
    gpu_count,
    loose_number,
    open_log,
    prove,
    whole_number,
)
from clusters.connectors.base import Reading, Row, UnreadableError, UsageFact
from portal.excerpt import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOKEN = re.compile(r'"((?:[^"]|"")*)"|([^\s"]+)')
_SHORT_HOST = re.compile(r"(\d{1,9})\*(.+)", re.ASCII)
_GPUS = re.compile(
    r"ngpus(?:_physical|_excl_p|_excl_t|_shared)?\s*=\s*([^\s:,\]&|]+)(\s*/\s*task)?", re.ASCII
)
_RUSAGES = 19  # fields of getrusage
STATES = {32: "EXIT", 64: "DONE"}
"""jStatus, as IBM's reference has it."""


class _Fields:
    """The fields of a record, taken from left to right."""

    def __init__(self, text: str) -> None:
        self._fields: list[str] = [bare or text_.replace('""', '"') for text_, bare in _TOKEN.findall(text)]
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._fields) - self._at

    def text(self, name: str) -> str:
        if not self.left:
            raise UnreadableError("log-field-missing", field=name)
        self._at += 1
        return self._fields[self._at - 1]

    def number(self, name: str) -> int:
        return whole_number(name, self.text(name))

    def counted(self, name: str) -> list[str]:
        """A number, and so many texts."""
        return self.texts(name, self.number(name))

    def texts(self, name: str, number: int) -> list[str]:
        if number > self.left:
            raise UnreadableError("log-field-missing", field=name)
        self._at += number
        return self._fields[self._at - number : self._at]


@dataclass(frozen=True, slots=True)
class _Tail:
    """What releases since 9 have behind the project. `run_time` is None where the record does not say it."""

    index: int
    run_limit: int | None = None
    requirement: str = ""
    run_time: int | None = None
    slots: int = 0
    gpu_hosts: int = 0


@dataclass(slots=True)
class LsfReader:
    """Reads one log. All its times are UTC epoch seconds."""

    reading: Reading
    source_key: str = ""
    notes: Notes = field(default_factory=Notes)

    def read(self, text: str) -> Row | None:
        fields = _Fields(text)
        kind = fields.text("event type")
        if kind != "JOB_FINISH":
            if not re.fullmatch(r"[A-Z_]+", kind):
                raise UnreadableError("log-record", scheduler="LSF", text=quoted(text))
            self.reading.steps += 1
            return None
        fields.text("version")
        ended = fields.number("event time")
        job = fields.number("jobId")
        fields.texts("userId, options", 2)
        processors = fields.number("numProcessors")
        submitted = fields.number("submitTime")
        fields.texts("beginTime, termTime", 2)
        started = fields.number("startTime")
        user, queue, requirement = fields.texts("userName, queue, resReq", 3)
        fields.texts("dependCond … jobFile", 8)
        fields.counted("askedHosts")
        hosts = fields.counted("execHosts")
        status = fields.number("jStatus")
        fields.text("hostFactor")
        name = fields.text("jobName")
        fields.texts("command, lsfRusage", 1 + _RUSAGES)
        fields.text("mailUser")
        project = fields.text("projectName")
        exit_code = fields.text("exitStatus")
        fields.texts("maxNumProcessors … timeEvent", 3)
        tail = _tail(fields)
        prove(self.reading, ended)
        if not started:  # it ended while it waited
            self.reading.steps += 1
            return None
        shown = f"{job}[{tail.index}]" if tail.index else str(job)
        self.source_key = f"{shown}#{started}@{submitted}"
        allocated = dict.fromkeys(_host(host)[1] for host in hosts)
        return UsageFact(
            source_key=self.source_key,
            account=project,
            user=user,
            job_id=shown,
            name=name,
            queue=queue,
            gpus=_gpus(tail, requirement, len(allocated)),
            cpu_milli=1000 * (tail.slots or _slots(hosts, processors)),
            nodes=len(allocated),
            node_list=",".join(allocated),
            requested=tail.requirement or requirement,
            time_limit=tail.run_limit,
            submitted=submitted,
            started=started,
            ended=ended,
            suspended=self._suspended(tail, started, ended),
            state=STATES.get(status, str(status)),
            exit_code=exit_code,
        )

    def rest(self) -> Iterator[Row]:
        self.notes.write(self.reading)
        return iter(())

    def _suspended(self, tail: _Tail, started: int, ended: int) -> int:
        """What LSF did not count as running. A run time of 0, or beyond the whole, tells nothing."""
        whole = ended - started
        if not tail.run_time or tail.run_time > whole:
            if tail.run_time and whole >= 0:
                self.notes.count("walltime")
            return 0
        return whole - tail.run_time


def _tail(fields: _Fields) -> _Tail:
    """As far as the record goes: what an older release does not write is left open."""
    index = fields.number("idx")
    try:
        fields.texts("maxRMem … jobDescription", 23)
        fields.texts("submitEXT", 2 * fields.number("submitEXT"))
        fields.texts("hostRusage", 6 * fields.number("numHostRusage"))
        limit, _, _, requirement = fields.texts("runLimit, options3, avgMem, effectiveResReq", 4)
        fields.texts("srcCluster … outdir", 9)
        run_time = fields.number("runTime")
    except UnreadableError:
        return _Tail(index)
    run_limit = loose_number(limit)
    tail = _Tail(index, run_limit, requirement, run_time)
    try:
        fields.text("subcwd")
        fields.texts("networkAlloc", 2 * fields.number("num_network"))
        fields.texts("affinity … gflops", 6)
        slots = len(fields.counted("allocSlots"))
        fields.text("ineligiblePendTime")
        fields.texts("indexRange", 3 * fields.number("indexRangeCnt"))
        fields.text("requeueTime")
        return _Tail(index, run_limit, requirement, run_time, slots, fields.number("numGPURusages"))
    except UnreadableError:
        return tail


def _host(text: str) -> tuple[int, str]:
    """`16*node7` of LSF_HPC_EXTENSIONS=SHORT_EVENTFILE → 16 slots of node7."""
    match = _SHORT_HOST.fullmatch(text)
    return (int(match[1]), match[2]) if match else (1, text)


def _slots(hosts: list[str], processors: int) -> int:
    """Each host as often as slots of it were given; where it stands once for all, no fewer than were asked for."""
    return max(sum(_host(host)[0] for host in hosts), processors)


def _gpus(tail: _Tail, requirement: str, hosts: int) -> int:
    """`rusage[ngpus_physical=2.00]` is of each host. Raises `UnreadableError` where it is not said how many."""
    text = tail.requirement or requirement
    counts = _GPUS.findall(text)
    if any(per_task for _, per_task in counts):
        raise UnreadableError("log-gpus", field="resource requirement", text=quoted(text))
    if len({count for count, _ in counts}) > 1:
        raise UnreadableError("log-gpus", field="resource requirement", text=quoted(text))
    if counts:
        return gpu_count("ngpus_physical", counts[0][0]) * hosts
    if tail.gpu_hosts:
        raise UnreadableError("log-gpus", field="resource requirement", text=quoted(text))
    return 0


def open_export(path: Path) -> LogExport:
    """An `lsb.acct` or one of its archives. Raises `ConnectorError`."""
    return open_log(
        path,
        scheduler="LSF",
        is_record=lambda text: text.startswith('"JOB_FINISH" "'),
        make_reader=LsfReader,
    )
