"""One row of slurmdbd → one `UsageFact`, by time and allocation; nothing is decided by the state's name."""

from __future__ import annotations

import json
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from clusters.connectors.base import BadRow, Reading, UnreadableError, UsageFact
from clusters.connectors.mig import OwnShares
from clusters.connectors.sacct.rows import NOTES
from clusters.connectors.slurm import decode, resources
from clusters.connectors.slurm.decode import Array, Exit, Het, Job, Number, Times, instant, whole
from portal.excerpt import excerpt, quoted

BASE_STATES = frozenset(
    {
        "PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED",
        "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY", "EXPEDITING",
    }
)  # fmt: skip
_NO_TIMES = Times()
_VOLATILE = ("elapsed", "planned", "system", "total", "user")  # what goes on while a row is open


class RowReader:
    """Reads rows of one source and counts into its `Reading`.

    `cluster` is Slurm's name of the cluster whose rows are wanted; "" takes all, and keeps in `names` whose they are.
    """

    def __init__(self, reading: Reading, *, cluster: str = "", shares: OwnShares = ()) -> None:
        self.shares = shares
        self.reading = reading
        self.cluster = cluster
        self.own_rows = 0  # rows of our cluster
        self.foreign: dict[str, int] = {}  # rows of other clusters
        self.names: set[str] = set()  # of clusters, where none is wanted above the others
        self._noted: dict[str, set[str]] = {}

    def read(self, job: Job) -> UsageFact | BadRow | None:
        """None for another cluster's row. Of a row that cannot be used the fields that are read are kept."""
        if not self.is_ours(job):
            name = job.cluster or ""
            self.foreign[name] = self.foreign.get(name, 0) + 1
            return None
        self.own_rows += 1
        try:
            return self._fact(job)
        except UnreadableError as unreadable:
            return BadRow(
                code=unreadable.code,
                values=unreadable.values,
                raw=raw_text(_as_json(job)),
                source_key=key(job) or "",
            )

    def is_ours(self, job: Job) -> bool:
        """Whether the row is of the cluster that is wanted; one without a name is."""
        name = job.cluster
        if not name or name == self.cluster:
            return True
        if not self.cluster:
            self.names.add(name)
        return not self.cluster

    def unread(self, raw: bytes, why: str) -> BadRow:
        """A row of another shape than any known version has."""
        return BadRow(code="shape", values={"reason": why}, raw=raw_text(raw))

    def _fact(self, job: Job) -> UsageFact:
        fact, note, resized = _fact(job, self.shares)
        if note:
            self._note(note, fact)
        if resized:
            self._note("resized", fact)
        return fact

    def _note(self, code: str, fact: UsageFact) -> None:
        seen = self._noted.setdefault(code, set())
        if len(seen) < 100_000:
            seen.add(fact.source_key)

    def finish(self) -> None:
        """Writes what was counted as sentences into the reading."""
        for code, keys in sorted(self._noted.items()):
            rows = "1 row" if len(keys) == 1 else f"{len(keys)} rows"
            self.reading.notes.append(NOTES[code].format(rows=rows))
        for name, number in sorted(self.foreign.items())[:10]:
            rows = "1 row" if number == 1 else f"{number} rows"
            self.reading.notes.append(
                f"Of the cluster {excerpt(name)} {rows} came, which this connection does not take: "
                f"it is for {self.cluster}."
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
        if not isinstance(row, dict):  # a list, or a number, where a job belongs
            return raw.decode("utf-8", "backslashreplace")
        row.pop("steps", None)
        times = row.get("time")
        if isinstance(times, dict) and not times.get("end"):
            for name in _VOLATILE:
                times.pop(name, None)
        return (
            json.dumps(row, sort_keys=True, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()
        )
    except (ValueError, RecursionError):
        return raw.decode("utf-8", "backslashreplace")


def _as_json(job: Job) -> bytes:
    try:
        return msgspec.json.encode(job)
    except UnicodeEncodeError:  # half of a surrogate pair, which the quick encoder refuses
        return json.dumps(msgspec.to_builtins(job)).encode()


def _fact(job: Job, shares: OwnShares) -> tuple[UsageFact, str, bool]:
    """Also a note of what was allocated, and whether the run was resized."""
    number = _job_number(job)
    times = job.time or _NO_TIMES
    submitted, started, ended, seen_until, suspended, resized = _span(times)
    tres = resources.allocated(job.tres.allocated, shares, job.nodes) if job.tres else resources.NOTHING
    requested, requested_nodes = resources.requested(job.tres.requested) if job.tres else ("", 0)
    cpus, nodes = tres.cpus, tres.nodes
    if cpus is None:  # what waits holds none, whatever newer slurmdbd says it requires
        cpus = 0 if started is None else whole(job.required.cpus if job.required else None) or 0
    if nodes is None:
        nodes = whole(job.allocation_nodes) or requested_nodes
    limit, eligible = whole(times.limit), times.eligible
    account, user, name = job.account, job.user, job.name
    queue, qos, node_list = job.partition, job.qos, job.nodes
    if not f"{account}{user}{name}{queue}{qos}{node_list}".isprintable():
        account, user, name = _text(account), _text(user), _text(name)
        queue, qos, node_list = _text(queue), _text(qos), _text(node_list)
    fact = UsageFact(  # in the order of its fields: naming them takes as long as all the rest
        f"{number}@{submitted}", account or "", user or "", display_id(number, job.array, job.het),
        name or "", queue or "", qos or "", "",
        tres.gpus, tres.gpu_model, tres.mig_profile, tres.gpu_share, cpus * 1000, tres.memory_mib, nodes,
        node_list or "", requested, None if limit is None else limit * 60,
        submitted, submitted if eligible == submitted else instant(eligible), started, ended,
        seen_until, suspended, state_word(job.state.current if job.state else None), _exit_code(job.exit_code),
        0, tres.billing, energy=resources.energy(job.tres.allocated) if job.tres else None,
    )  # fmt: skip
    return fact, tres.note, resized


def _job_number(job: Job) -> int:
    number = whole(job.job_id)
    if not number:
        raise UnreadableError("job-id", text=quoted(""))
    return number


def _span(times: Times) -> tuple[int, int | None, int | None, int | None, int, bool]:
    """Submission, start, end, the second proved while open, suspended seconds, and whether it was resized."""
    submitted, start, end = instant(times.submission), instant(times.start), instant(times.end)
    if submitted is None:
        raise UnreadableError("no-submit")
    suspended = whole(times.suspended) or 0
    if start is not None and end is not None and not suspended and submitted <= start <= end:
        return submitted, start, end, None, 0, False
    elapsed = whole(times.elapsed) or 0
    if start is None:
        if elapsed and end is None:
            raise UnreadableError("no-start")
        return submitted, end, end, None, 0, False
    # Older Slurm gives the second row of a resized job the first start; its time until then is the first row's.
    began = max(start, submitted)
    if end is not None:
        ended = max(end, began)
        return submitted, began, ended, None, min(suspended, ended - began), start < submitted
    proved = max(start + elapsed + suspended, began)
    return submitted, began, None, proved, min(suspended, proved - began), start < submitted


def display_id(number: int, array: Array | None, het: Het | None) -> str:
    """As people write it, and sacct prints it: `12_3`, `12_[2-5%3]`, `17+1`, else the number."""
    if array and array.job_id and (of_array := whole(array.job_id)):
        task = whole(array.task_id)
        if task is not None:
            return f"{of_array}_{task}"
        if array.task:
            most = _most_at_once(array)
            return f"{of_array}_[{_tasks(array.task)}{f'%{most}' if most else ''}]"
    if het and het.job_id and (of_het := whole(het.job_id)):
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
    return _word(state if isinstance(state, str) else tuple(state)) if state else ""


@lru_cache(maxsize=256)
def _word(state: str | tuple[str, ...]) -> str:
    words = decode.words(state if isinstance(state, str) else list(state))
    return next((word for word in words if word not in BASE_STATES), words[0]) if words else ""


def _exit_code(code: Exit | None) -> str:
    """`7:0`, `0:11`; "" from versions that give it wrong, which give the status as one word."""
    if code is None or not isinstance(code.status, list):
        return ""
    return _code(code.return_code, code.signal.id if code.signal else None)


@lru_cache(maxsize=1024)
def _code(returned: Number, signal: Number) -> str:
    return f"{whole(returned) or 0}:{whole(signal) or 0}"


def _text(text: str | None) -> str:
    """Readable whatever it holds: control characters stay, what no database holds is written out."""
    if not text or text.isprintable():
        return text or ""
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")
