"""Many rows of sacct at once, column by column: each distinct text of a column is read once.

Only plain rows are read so: those that ended, on days of one offset, with End - Start equal to ElapsedRaw, and
with nothing in them that a rule could object to. Every other row is left to `rows`, which has all the rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator
from itertools import compress, repeat
from operator import add, itemgetter, le, sub
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from clusters.connectors.base import Row, UnreadableError, UsageFact
from clusters.connectors.files import LINE_LIMIT, Block
from clusters.connectors.sacct.fields import count, state_word, time_limit
from clusters.connectors.sacct.layout import RawRow
from clusters.connectors.sacct.tres import energy, parse_tres
from clusters.connectors.shards import NAME as SHARDS

if TYPE_CHECKING:
    from clusters.connectors.sacct.rows import RowReader

Text = TypeVar("Text", bound=Hashable)
Value = TypeVar("Value")

MEMORY = 100_000  # texts of one kind, more than a day has seconds
NEVER = -(10**12)
"""Stands for what is no plain time: whatever is added to it, it is before every moment that there is."""

_NOT_SUSPENDED = frozenset({"", "00:00:00"})
_HOUR, _MINUTE, _SECOND = itemgetter(slice(13)), itemgetter(slice(13, 16)), itemgetter(slice(16, None))

_HAS_SHARDS = re.compile(SHARDS).search

Shape = tuple[int, str, str, tuple[int, int], int, int, int, int, str]
"""GPUs, model, MIG profile, share, thousandths of a core, MiB, nodes, Slurm's billing; and the note of a `Tres`."""


class _Known(dict[Text, Value], Generic[Text, Value]):
    """What `read` makes of each text, or `otherwise` where it refuses. Forgets all when it is full."""

    def __init__(self, read: Callable[[Text], Value], otherwise: Value) -> None:
        super().__init__()
        self.read, self.otherwise = read, otherwise

    def __missing__(self, text: Text) -> Value:
        try:
            value = self.read(text)
        except (UnreadableError, LookupError):
            value = self.otherwise
        if len(self) >= MEMORY:
            self.clear()
        self[text] = value
        return value


class _Criteria(NamedTuple):
    """What decides of each row whether it is plain, by columns."""

    jobs: list[str]
    submitted: list[int]
    started: list[int]
    ended: list[int]
    elapsed: list[str]
    suspended: list[str]
    states: list[str]
    shapes: list[Shape | None]

    def all_plain(self) -> bool:
        """Whether all are: a third of the time of looking at each."""
        numbers = "".join(self.jobs)
        return (
            min(self.submitted) > 0
            and all(map(le, self.submitted, self.started))
            and all(map(le, self.started, self.ended))
            and list(map(str, map(sub, self.ended, self.started))) == self.elapsed
            and _NOT_SUSPENDED.issuperset(self.suspended)
            and "RUNNING" not in self.states
            and None not in self.shapes
            and numbers.isdecimal()
            and numbers.isascii()
            and min(self.jobs) >= "1"
            and max(map(len, self.jobs)) < 19
        )

    def plain(self) -> list[bool]:
        """Which are."""
        return [
            0 < submit <= start <= end
            and str(end - start) == elapsed
            and suspended in _NOT_SUSPENDED
            and state != "RUNNING"
            and shape is not None
            and job.isdecimal()
            and job.isascii()
            and job[0] != "0"
            and len(job) < 19
            for job, submit, start, end, elapsed, suspended, state, shape in zip(*self, strict=True)
        ]


class ColumnReader:
    """Reads blocks of lines beside the `RowReader` of the same export."""

    def __init__(self, rows: RowReader, delimiter: str) -> None:
        self.rows = rows
        self.delimiter = delimiter
        self.width = rows.columns.width
        clock = rows.clock
        self.hours: _Known[str, int] = _Known(
            lambda text: clock.midnights[text[:10]] + clock.times[f"{text[10:]}:00:00"], NEVER
        )
        self.minutes: _Known[str, int] = _Known(lambda text: clock.times[f"T00{text}:00"], NEVER)
        self.seconds: _Known[str, int] = _Known(lambda text: clock.times[f"T00:00{text}"], NEVER)
        self.loosely = _Known(clock.loosely, None)
        self.states = _Known(state_word, "RUNNING")
        self.shapes = _Known(self._shape, None)
        self.limits: _Known[tuple[str, str], int | None] = _Known(lambda texts: time_limit(*texts), None)

    def read(self, block: Block) -> Iterator[Row] | None:
        """The rows of a block in their order, without job steps; None where not every line is a row by itself."""
        if block.fault or self.rows.columns.repeated:
            return None
        # Each line break becomes a field of its own. Where all of them stand as far apart as the export is wide,
        # each line has its fields.
        text, lines = f"{self.delimiter}\n{self.delimiter}".join(block.texts), len(block.texts)
        fields = text.split(self.delimiter)
        breaks = fields[self.width :: self.width + 1]
        if (
            len(text) > LINE_LIMIT
            or len(fields) != lines * (self.width + 1) - 1
            or breaks.count("\n") != lines - 1
        ):
            return None
        return self._rows(block.number, fields, lines)

    def _rows(self, number: int, fields: list[str], lines: int) -> Iterator[Row]:
        plain, facts = self._facts(fields, lines)
        return facts if plain is None else self._mixed(number, fields, plain, facts)

    def _mixed(
        self, number: int, fields: list[str], plain: list[bool], facts: Iterator[UsageFact]
    ) -> Iterator[Row]:
        for at, is_plain in enumerate(plain):
            if is_plain:
                yield next(facts)
                continue
            first = at * (self.width + 1)
            row = fields[first : first + self.width]
            careful = self.rows.read(RawRow(number + at, self.delimiter.join(row), row, ""))
            if careful is not None:
                yield careful

    def _facts(self, fields: list[str], lines: int) -> tuple[list[bool] | None, Iterator[UsageFact]]:
        """Which rows are plain, None where all are; and the facts of those."""
        rows, nothing = self.rows, [""] * lines

        def column(at: int) -> list[str]:
            return fields[at :: self.width + 1] if at < self.width else nothing

        submits, eligibles, jobs = column(rows.submit), column(rows.eligible), column(rows.job)
        submitted, started = self._moments(submits), self._moments(column(rows.start))
        ended = self._moments(column(rows.end))
        states = list(map(self.states.__getitem__, column(rows.state)))
        listed = column(rows.tres)
        shapes = self._shapes(listed, column(rows.cpus), column(rows.nodes), column(rows.node_list))
        criteria = _Criteria(
            jobs, submitted, started, ended, column(rows.raw_elapsed), column(rows.suspended), states, shapes
        )
        selected = None if criteria.all_plain() else criteria.plain()
        if selected is not None and not any(selected):
            return selected, iter(())

        def plain(values: list[Value]) -> list[Value]:
            return values if selected is None else list(compress(values, selected))

        jobs, submitted, ended = plain(jobs), plain(submitted), plain(ended)
        gpus, models, profiles, shares, cpus, memory, nodes, billing, notes = zip(*plain(shapes), strict=True)
        eligible = plain(eligibles)
        requested = _first_of(plain(column(rows.requested)), plain(column(rows.requested_memory)))
        limits = zip(plain(column(rows.raw_limit)), plain(column(rows.limit)), strict=True)
        facts = map(  # in the order of its fields
            UsageFact,
            [f"{job}@{submit}" for job, submit in zip(jobs, submitted, strict=True)],
            plain(column(rows.account)), plain(column(rows.user)),
            _first_of(plain(column(rows.job_id)), jobs), plain(column(rows.name)), plain(column(rows.queue)),
            plain(column(rows.qos)), repeat(""), gpus, models, profiles, shares, cpus, memory, nodes,
            plain(column(rows.node_list)), requested, map(self.limits.__getitem__, limits),
            submitted, submitted if eligible == plain(submits) else map(self.loosely.__getitem__, eligible),
            plain(started), ended, repeat(None), repeat(0), plain(states),
            plain(column(rows.exit_code)), repeat(0), billing, repeat(""), repeat(None),
            _joules(plain(listed), plain(column(rows.energy))),
        )  # fmt: skip
        rows.prove(max(ended))
        rows.note(*notes)
        for cluster in dict.fromkeys(plain(column(rows.cluster))):
            rows.meet(cluster)
        return selected, facts

    def _moments(self, texts: list[str]) -> list[int]:
        hours = map(self.hours.__getitem__, map(_HOUR, texts))
        minutes = map(self.minutes.__getitem__, map(_MINUTE, texts))
        return list(map(add, map(add, hours, minutes), map(self.seconds.__getitem__, map(_SECOND, texts))))

    def _shapes(
        self, listed: list[str], cpus: list[str], nodes: list[str], hosts: list[str]
    ) -> list[Shape | None]:
        # What shards are of a GPU depends on the nodes; without shards the same list is read once.
        if not any(map(_HAS_SHARDS, set(listed))):
            hosts = [""] * len(listed)
        return list(map(self.shapes.__getitem__, zip(listed, cpus, nodes, hosts, strict=True)))

    def _shape(self, texts: tuple[str, str, str, str]) -> Shape:
        listed, cpus, nodes, hosts = texts
        tres = parse_tres(listed, self.rows.shares, hosts)
        return (
            tres.gpus, tres.gpu_model, tres.mig_profile, tres.gpu_share,
            1000 * (count("NCPUS", cpus) if tres.cpus is None else tres.cpus), tres.memory_mib,
            count("NNodes", nodes) if tres.nodes is None else tres.nodes, tres.billing, tres.note,
        )  # fmt: skip


def _first_of(texts: list[str], others: list[str]) -> list[str]:
    return [text or other for text, other in zip(texts, others, strict=True)] if "" in texts else texts


def _joules(listed: list[str], raw: list[str]) -> Iterator[int | None]:
    if any(raw) or any("energy=" in text for text in set(listed)):
        return map(energy, listed, raw)
    return repeat(None)
