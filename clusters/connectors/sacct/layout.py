"""The columns of an export by its header, and its rows by its lines.

sacct escapes nothing, so a line break inside a field splits its row. Nothing is lost: every line that is not blank is
part of exactly one `RawRow`. Memory is bounded by `LINE_LIMIT`, whatever the file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from clusters.connectors.base import ConnectorError
from clusters.connectors.files import LINE_LIMIT
from portal.excerpt import excerpt, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from clusters.connectors.files import Line

COMMAND = (
    "TZ=UTC sacct --allusers --allocations --duplicates --parsable2 "
    "--starttime 2026-01-01 --endtime 2026-02-01 "
    "--format=JobIDRaw,JobID,Cluster,User,Account,Partition,QOS,State,ExitCode,Submit,Eligible,Start,End,"
    "ElapsedRaw,Suspended,TimelimitRaw,NNodes,NCPUS,ReqTRES,AllocTRES,JobName,NodeList"
)
"""What docs/reference/sacct.md prescribes; the dates are an example."""

NEEDED = ("JobIDRaw", "Submit", "Start", "End", "State", "Account", "AllocTRES")
ELAPSED = ("ElapsedRaw", "Elapsed")
OPTIONAL = (
    "JobID", "JobName", "User", "Partition", "QOS", "Cluster", "Eligible", "Suspended",
    "TimelimitRaw", "Timelimit", "NNodes", "AllocNodes", "NCPUS", "AllocCPUS", "ReqTRES", "ReqMem",
    "ExitCode", "NodeList", "ConsumedEnergyRaw",
)  # fmt: skip
_READ = {name.lower(): name for name in (*NEEDED, *ELAPSED, *OPTIONAL)}

# A cut in these can go unnoticed: what is left is still a name or a number. Times have a fixed length.
_CUT_UNNOTICED = frozenset(_READ.values()) - {"Submit", "Start", "End", "Eligible", "JobName", "NodeList"}

_NAME = re.compile(r"\s*[A-Za-z][A-Za-z0-9]*(?:%-?\d+)?\s*", re.ASCII)
_OTHERS = {"|#": "|#", ",": ",", ";": ";", "\t": "a tab", "|": "|", "^": "^"}
_SACCT = re.compile(r"\s*(?:JobID(?:Raw)?|Account)\s+\S", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each column is. One that the export lacks is at `width`, where the reader keeps an empty text."""

    width: int
    position: dict[str, int]
    repeated: tuple[tuple[str, tuple[int, ...]], ...]  # columns that the header names more than once
    cut_unnoticed: bool  # the last column is one that a torn last line falsifies silently

    def of(self, *names: str) -> int:
        """The position of the first of the names that the export has."""
        return next((self.position[name] for name in names if name in self.position), self.width)


def layout(names: Sequence[str], *, delimiter: str) -> Layout:
    """Raises `ConnectorError` if these are not the names of a job listing with all that is needed."""
    plain = [name.strip().lower().partition("%")[0] for name in names]
    columns = [_READ.get(name) for name in plain]
    missing = [name for name in NEEDED if name not in columns]
    if not any(name in columns for name in ELAPSED):
        missing.append("ElapsedRaw (or Elapsed)")
    if missing:
        raise _refusal(list(names), columns, missing, delimiter)
    places: dict[str, list[int]] = {}
    for at, name in enumerate(columns):
        if name is not None:
            places.setdefault(name, []).append(at)
    return Layout(
        width=len(plain),
        position={name: at[0] for name, at in places.items()},
        repeated=tuple((name, tuple(at)) for name, at in places.items() if len(at) > 1),
        cut_unnoticed=columns[-1] in _CUT_UNNOTICED,
    )


def is_header(names: Sequence[str]) -> bool:
    """Whether a file's first line names columns. No job's row can: it holds numbers and times."""
    plain = [name.strip() for name in names]
    return all(_NAME.fullmatch(name) or not name for name in plain) and any(
        name.lower() in _READ for name in plain
    )


def _refusal(
    names: list[str], columns: list[str | None], missing: list[str], delimiter: str
) -> ConnectorError:
    line = delimiter.join(names)
    if other := _other_delimiter(line, sum(name is not None for name in columns), delimiter):
        return ConnectorError(
            "sacct-other-delimiter",
            retry=False,
            separator=_OTHERS[other],
            delimiter=quoted(delimiter),
            option="$'\\t'" if other == "\t" else f"'{other}'",
        )
    if len(names) == 1 and _SACCT.match(line):
        return ConnectorError("sacct-aligned", retry=False, command=COMMAND)
    if not all(_NAME.fullmatch(name) or not name for name in names):
        return ConnectorError("sacct-no-header", retry=False, command=COMMAND)
    if not {"JobIDRaw", "JobID"} & set(columns):
        shown = excerpt(", ".join(name.strip() for name in names[:5])).removesuffix("…")
        return ConnectorError("sacct-no-listing", retry=False, columns=shown, command=COMMAND)
    return ConnectorError("sacct-columns-missing", retry=False, columns=", ".join(missing), command=COMMAND)


def _other_delimiter(line: str, recognised: int, delimiter: str) -> str | None:
    """The separator under which clearly more of the header is understood."""
    for other in _OTHERS:
        names = {_READ.get(part.strip().lower()) for part in line.split(other)} - {None}
        if other != delimiter and len(names) >= recognised + 3:
            return other
    return None


JOIN_LIMIT = 100  # lines of one row


class RawRow(NamedTuple):
    """`fields` is None where they could not be told, and then `fault` says why.

    With fields, `fault` is "", "joined" (of several lines) or "unfinished" (the file ends within the row).
    """

    line: int
    text: str
    fields: list[str] | None
    fault: str


def raw_rows(lines: Iterable[Line], *, delimiter: str, width: int) -> Iterator[RawRow]:
    """Rows of `width` fields: lines with fewer are joined while that helps."""
    joiner = Joiner(delimiter, width)
    yield from joiner.rows(lines)
    yield from joiner.give_up()


class Joiner:
    """Makes rows of lines, and keeps the lines of a row that has too few fields yet."""

    def __init__(self, delimiter: str, width: int) -> None:
        self.delimiter = delimiter
        self.width = width
        self.lines: list[Line] = []
        self.count = 0
        self.size = 0

    def rows(self, lines: Iterable[Line]) -> Iterator[RawRow]:
        """A line that is complete by itself is never joined to a torn one before it."""
        for line in lines:
            number, text, fault = line
            fields = text.split(self.delimiter)
            fits = len(fields) == self.width and fault != "too-long"
            if not fits and len(fields) <= self.width and fault != "too-long":
                if self.lines or text.strip():
                    yield from self._add(line, len(fields))
                continue
            yield from self.give_up()
            if fits:
                yield RawRow(number, text, fields, fault)
            else:
                yield RawRow(number, text, None, fault or "too-many-fields")

    def _add(self, line: Line, count: int) -> Iterator[RawRow]:
        too_much = self.size + len(line.text) > LINE_LIMIT or len(self.lines) == JOIN_LIMIT
        if self.lines and (too_much or self.count + count - 1 > self.width):
            yield from self.give_up()
            if not line.text.strip():
                return
        self.count += count - 1 if self.lines else count
        self.size += len(line.text)
        self.lines.append(line)
        if self.count == self.width:
            text = "\n".join(part.text for part in self.lines)
            yield RawRow(self.lines[0].number, text, text.split(self.delimiter), line.fault or "joined")
            self._clear()

    def give_up(self) -> Iterator[RawRow]:
        if self.lines:
            yield RawRow(self.lines[0].number, "\n".join(part.text for part in self.lines), None, "truncated")
            self._clear()

    def _clear(self) -> None:
        self.lines, self.count, self.size = [], 0, 0
