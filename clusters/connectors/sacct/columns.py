"""Many rows of sacct at once, column by column: each distinct text of a column is read once.

Only plain rows are read so: those that ended, on days of one offset, with End - Start equal to ElapsedRaw, and
with nothing in them that a rule could object to. Every other row is left to `rows`, which has all the rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial
from itertools import compress, repeat
from typing import TYPE_CHECKING, Any, Generic, TypeVar

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
        self.seconds: _Known[str, int] = _Known(lambda text: clock.times[f"T00{text}"], NEVER)
        self.loosely = _Known(clock.loosely, None)
        self.states = _Known(state_word, "RUNNING")
        self.shapes = _Known(self._shape, None)
        self.limits: _Known[tuple[str, str], int | None] = _Known(lambda texts: time_limit(*texts), None)

    def read(self, block: Block) -> Iterator[Row] | None:
        """The rows of a block in their order, without job steps; None where not every line is a row by itself."""
        if block.fault or len(block.text) > LINE_LIMIT or self.rows.columns.repeated:
            return None
        # Each line break becomes a field of its own. Where all of them stand as far apart as the export is wide,
        # each line has its fields.
        fields = block.text.replace("\n", f"{self.delimiter}\n{self.delimiter}").split(self.delimiter)
        lines = block.text.count("\n")
        breaks = fields[self.width :: self.width + 1]
        if len(fields) != lines * (self.width + 1) + 1 or breaks.count("\n") != lines:
            return None
        del fields[-1]
        return self._rows(block.number, fields, lines)

    def _rows(self, number: int, fields: list[str], lines: int) -> Iterator[Row]:
        keys, facts = self._facts(fields, lines)
        if all(keys):
            yield from facts
            return
        for at, key in enumerate(keys):
            if key:
                yield next(facts)
                continue
            first = at * (self.width + 1)
            row = fields[first : first + self.width]
            careful = self.rows.read(RawRow(number + at, self.delimiter.join(row), row, ""))
            if careful is not None:
                yield careful

    def _facts(self, fields: list[str], lines: int) -> tuple[list[str], Iterator[UsageFact]]:
        """The source key of each row, an empty text where it is not plain; and the facts of those that are."""
        rows, nothing = self.rows, [""] * lines

        def column(at: int) -> list[str]:
            return fields[at :: self.width + 1] if at < self.width else nothing

        submits, eligibles, jobs = column(rows.submit), column(rows.eligible), column(rows.job)
        submitted, started = self._moments(submits), self._moments(column(rows.start))
        ended = self._moments(column(rows.end))
        states = list(map(self.states.__getitem__, column(rows.state)))
        # What shards are of a GPU depends on the nodes; without shards the same list is read once.
        listed = column(rows.tres)
        hosts = column(rows.node_list) if any(map(_HAS_SHARDS, set(listed))) else nothing
        held = zip(listed, column(rows.cpus), column(rows.nodes), hosts, strict=True)
        shapes = list(map(self.shapes.__getitem__, held))
        keys = [
            f"{job}@{submit}"
            if 0 < submit <= start <= end
            and str(end - start) == elapsed
            and suspended in _NOT_SUSPENDED
            and state != "RUNNING"
            and shape is not None
            and job.isdecimal()
            and job.isascii()
            and job[0] != "0"
            and len(job) < 19
            else ""
            for job, submit, start, end, elapsed, suspended, state, shape in zip(
                jobs, submitted, started, ended, column(rows.raw_elapsed), column(rows.suspended), states, shapes,
                strict=True,
            )
        ]  # fmt: skip
        if not any(keys):
            return keys, iter(())
        plain: Callable[[Iterable[Any]], Iterable[Any]] = (
            iter if all(keys) else partial(compress, selectors=keys)
        )
        gpus, models, profiles, shares, cpus, memory, nodes, billing, notes = zip(*plain(shapes), strict=True)
        limits = zip(column(rows.raw_limit), column(rows.limit), strict=True)
        requested = _first_of(column(rows.requested), column(rows.requested_memory))
        eligible = submitted if eligibles == submits else map(self.loosely.__getitem__, eligibles)
        facts = map(  # in the order of its fields
            UsageFact,
            plain(keys), plain(column(rows.account)), plain(column(rows.user)),
            plain(_first_of(column(rows.job_id), jobs)), plain(column(rows.name)), plain(column(rows.queue)),
            plain(column(rows.qos)), repeat(""), gpus, models, profiles, shares, cpus, memory, nodes,
            plain(column(rows.node_list)), plain(requested), plain(map(self.limits.__getitem__, limits)),
            plain(submitted), plain(eligible), plain(started), plain(ended), repeat(None), repeat(0), plain(states),
            plain(column(rows.exit_code)), repeat(0), billing, repeat(""), repeat(None),
            map(energy, plain(listed), plain(column(rows.energy))),
        )  # fmt: skip
        rows.prove(max(plain(ended)))
        rows.note(*notes)
        for cluster in dict.fromkeys(plain(column(rows.cluster))):
            rows.meet(cluster)
        return keys, facts

    def _moments(self, texts: list[str]) -> list[int]:
        hours, seconds = self.hours, self.seconds
        return [hours[text[:13]] + seconds[text[13:]] for text in texts]

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
