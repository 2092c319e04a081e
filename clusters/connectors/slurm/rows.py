"""One row of slurmdbd → one `UsageFact`, by time and allocation; nothing is decided by the state's name."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache

import msgspec

from clusters.connectors.base import BadRow, Reading, Row, UsageFact
from clusters.connectors.sacct_fields import UnreadableError
from clusters.connectors.sacct_rows import NOTES
from clusters.connectors.sacct_tres import Tres, held, is_read
from clusters.connectors.slurm import decode
from clusters.connectors.slurm.decode import Array, Exit, Het, Job, Number, TresCount, instant, whole

BASE_STATES = frozenset(
    {
        "PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED",
        "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY", "EXPEDITING",
    }
)  # fmt: skip
_UNITS = ("M", "G", "T", "P", "E")
_VOLATILE = ("elapsed", "planned", "system", "total", "user")  # what goes on while a row is open


class RowReader:
    """Reads rows of one source and counts into its `Reading`.

    `cluster` is Slurm's name of the cluster whose rows are wanted; "" takes all.
    """

    def __init__(self, reading: Reading, *, cluster: str = "") -> None:
        self.reading = reading
        self.cluster = cluster
        self.taken = 0  # rows of our cluster
        self.foreign: dict[str, int] = {}  # rows of other clusters
        self._noted: dict[str, set[str]] = {}

    def read(self, job: Job) -> Row | None:
        """None for another cluster's row. Of a row that cannot be used the fields that are read are kept."""
        if not self.is_ours(job):
            name = job.cluster or ""
            self.foreign[name] = self.foreign.get(name, 0) + 1
            return None
        self.taken += 1
        try:
            return self._fact(job)
        except UnreadableError as unreadable:
            return BadRow(
                reason=str(unreadable),
                code=unreadable.code,
                raw=raw_text(msgspec.json.encode(job)),
                source_key=key(job) or "",
            )

    def is_ours(self, job: Job) -> bool:
        """Whether the row is of the cluster that is wanted; one without a name is."""
        return not (self.cluster and job.cluster and job.cluster != self.cluster)

    def unread(self, raw: bytes, why: str) -> BadRow:
        """A row of another shape than any known version has."""
        return BadRow(
            reason=f"The row has a field of an unknown kind: {why}. Tell the developers of it.",
            code="shape",
            raw=raw_text(raw),
        )

    def _fact(self, job: Job) -> UsageFact:
        fact, notes = _fact(job)
        for note in notes:
            seen = self._noted.setdefault(note, set())
            if len(seen) < 100_000:
                seen.add(fact.source_key)
        return fact

    def finish(self) -> None:
        """Writes what was counted as sentences into the reading."""
        for code, keys in sorted(self._noted.items()):
            rows = "1 row" if len(keys) == 1 else f"{len(keys)} rows"
            self.reading.notes.append(NOTES[code].format(rows=rows))
        for name, number in sorted(self.foreign.items())[:10]:
            rows = "1 row" if number == 1 else f"{number} rows"
            self.reading.notes.append(
                f"Of the cluster {name} {rows} came, which this connection does not take: it is for {self.cluster}."
            )


def key(job: Job) -> str | None:
    """The source key, unique for ever: job ids are used again after a controller lost its state."""
    number, submitted = whole(job.job_id), instant(job.time.submission) if job.time else None
    return f"{number}@{submitted}" if number and submitted else None


def ends(job: Job) -> int | None:
    """The second in which a row says that it ended; None while it is open."""
    return instant(job.time.end) if job.time else None


def unmoved(fact: UsageFact) -> UsageFact:
    """An open run of which nothing proves that it still holds anything: its zero seconds never take back more.

    The ledger keeps what it knew of an open run as long as that reaches further.
    """
    if fact.started is None or fact.ended is not None:
        return fact
    return replace(fact, seen_until=fact.started + fact.suspended)


def raw_text(raw: bytes) -> str:
    """The row as JSON, without its steps and without what goes on while it is open: the same row, the same text."""
    try:
        row = decode.loose(raw)
        row.pop("steps", None)
        times = row.get("time")
        if isinstance(times, dict) and not times.get("end"):
            for name in _VOLATILE:
                times.pop(name, None)
        return json.dumps(row, sort_keys=True, ensure_ascii=False)
    except (AttributeError, ValueError):
        return raw.decode("utf-8", "backslashreplace")


def _fact(job: Job) -> tuple[UsageFact, list[str]]:
    number = _job_number(job)
    submitted, started, ended, seen_until, suspended, resized = _span(job)
    tres = _allocated(job)
    required = job.required.cpus if job.required else None
    asked = job.tres.requested if job.tres else None
    cpus = tres.cpus if tres.cpus is not None else whole(required) or 0
    nodes = tres.nodes if tres.nodes is not None else whole(job.allocation_nodes) or _node_count(asked)
    limit = whole(job.time.limit) if job.time else None
    fact = UsageFact(
        source_key=f"{number}@{submitted}",
        account=_text(job.account),
        user=_text(job.user),
        job_id=display_id(number, job.array, job.het),
        name=_text(job.name),
        queue=_text(job.partition),
        qos=_text(job.qos),
        gpus=tres.gpus,
        gpu_model=tres.gpu_model,
        mig_profile=tres.mig_profile,
        gpu_share=tres.gpu_share,
        cpu_milli=cpus * 1000,
        memory_mib=tres.memory_mib,
        nodes=nodes,
        node_list=_text(job.nodes),
        requested=_printed(asked),
        time_limit=None if limit is None else limit * 60,
        submitted=submitted,
        eligible=instant(job.time.eligible) if job.time else None,
        started=started,
        ended=ended,
        seen_until=seen_until,
        suspended=suspended,
        state=state_word(job.state.current if job.state else None),
        exit_code=_exit_code(job.exit_code),
    )
    return fact, [note for note in (tres.note, "resized" if resized else "") if note]


def _job_number(job: Job) -> int:
    number = whole(job.job_id)
    if not number:
        raise UnreadableError("job-id", "The row has no job id; without it the row has no identity.")
    return number


def _span(job: Job) -> tuple[int, int | None, int | None, int | None, int, bool]:
    """Submission, start, end, the second proved while open, suspended seconds, and whether it was resized."""
    times = job.time or decode.Times()
    submitted = instant(times.submission)
    if submitted is None:
        raise UnreadableError(
            "no-submit", "The row has no submission time; without it the row has no identity."
        )
    start, end = instant(times.start), instant(times.end)
    elapsed, suspended = whole(times.elapsed) or 0, whole(times.suspended) or 0
    if start is None:
        if elapsed and end is None:
            raise UnreadableError("no-start", "The row has no start although the job ran.")
        return submitted, end, end, None, 0, False
    # Older Slurm gives the second row of a resized job the first start; its time until then is the first row's.
    began = max(start, submitted)
    if end is not None:
        ended = max(end, began)
        return submitted, began, ended, None, min(suspended, ended - began), start < submitted
    proved = max(start + elapsed + suspended, began)
    return submitted, began, None, proved, min(suspended, proved - began), start < submitted


def _allocated(job: Job) -> Tres:
    listed = job.tres.allocated if job.tres else None
    counts: list[tuple[str, int]] = []
    for one in listed or ():
        name = f"{one.type}/{one.name}" if one.name else one.type
        if is_read(name):
            counts.append((name, whole(one.count) or 0))
    return held(tuple(counts))


def _node_count(asked: list[TresCount] | None) -> int:
    return next((whole(one.count) or 0 for one in asked or () if one.type == "node"), 0)


def _printed(asked: list[TresCount] | None) -> str:
    """As sacct prints it: `billing=48,cpu=4,gres/gpu:a100=1,gres/gpu=1,mem=62.50G,node=1`."""
    if not asked:
        return ""
    return _joined(tuple((one.type, one.name or "", whole(one.count)) for one in asked))


@lru_cache(maxsize=16_384)
def _joined(asked: tuple[tuple[str, str, int | None], ...]) -> str:
    parts = [
        f"{kind}/{name}={count}" if name else f"{kind}={_amount(count) if kind == 'mem' else count}"
        for kind, name, count in asked
        if count is not None
    ]
    return ",".join(sorted(parts))


def _amount(mebibytes: int) -> str:
    """64000 → `62.50G`: hundredths of the largest unit of which there is one."""
    unit, size = 0, 1
    while mebibytes >= 1024 * size and unit < len(_UNITS) - 1:
        unit, size = unit + 1, size * 1024
    if mebibytes % size == 0:
        return f"{mebibytes // size}{_UNITS[unit]}"
    hundredths = (mebibytes * 200 + size) // (2 * size)
    return f"{hundredths // 100}.{hundredths % 100:02d}{_UNITS[unit]}"


def display_id(number: int, array: Array | None, het: Het | None) -> str:
    """As people write it, and sacct prints it: `12_3`, `12_[2-5%3]`, `17+1`, else the number."""
    of_array = whole(array.job_id) if array else None
    if array and of_array:
        task = whole(array.task_id)
        if task is not None:
            return f"{of_array}_{task}"
        if array.task:
            most = _most_at_once(array)
            return f"{of_array}_[{_tasks(array.task)}{f'%{most}' if most else ''}]"
    of_het = whole(het.job_id) if het else None
    if het and of_het:
        return f"{of_het}+{whole(het.job_offset) or 0}"
    return str(number)


def _most_at_once(array: Array) -> int | None:
    running = array.limits.max.running if array.limits and array.limits.max else None
    return whole(running.tasks) if running else None


@lru_cache(maxsize=1024)
def _tasks(text: str) -> str:
    """`0x3C` → `2-5`; what is no mask stays."""
    try:
        mask = int(text, 16) if text.lower().startswith("0x") else None
    except ValueError:
        return _text(text)
    if mask is None:
        return _text(text)
    spans: list[list[int]] = []
    for task, bit in enumerate(reversed(f"{mask:b}")):
        if bit == "1":
            if spans and spans[-1][1] == task - 1:
                spans[-1][1] = task
            else:
                spans.append([task, task])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in spans)


def state_word(state: decode.Words) -> str:
    """The one word that sacct prints: a flag such as REQUEUED or RESIZING before the base state."""
    found = decode.words(state)
    return next((word for word in found if word not in BASE_STATES), found[0]) if found else ""


def _exit_code(code: Exit | None) -> str:
    """`7:0`, `0:11`; "" from versions that give it wrong, which give the status as one word."""
    if code is None or not isinstance(code.status, list):
        return ""
    signal: Number = code.signal.id if code.signal else None
    return f"{whole(code.return_code) or 0}:{whole(signal) or 0}"


def _text(text: str | None) -> str:
    """Readable whatever it holds: control characters stay, what no database holds is written out."""
    if not text or text.isprintable():
        return text or ""
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")
