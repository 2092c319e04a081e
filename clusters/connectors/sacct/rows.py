"""One row of sacct → one `UsageFact`, or a `BadRow` that says why not.

Rows are read twice over at most: plain ones (nearly all) by a short path that only accepts what needs no
thought, everything else by the careful path, which holds all rules.
"""

from __future__ import annotations

import re
from operator import itemgetter
from typing import TYPE_CHECKING

from clusters.connectors.base import BadRow, Reading, Row, UnreadableError, UsageFact
from clusters.connectors.mig import OwnShares
from clusters.connectors.sacct.fields import (
    DISPLAY_ID,
    STEP_ID,
    count,
    duration,
    job_number,
    raw_seconds,
    state_word,
    time_limit,
)
from clusters.connectors.sacct.times import UNSET, Clock, Span, Times, read_span
from clusters.connectors.sacct.tres import parse_tres
from portal.excerpt import excerpt

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from clusters.connectors.sacct.layout import Layout, RawRow

NOTES = {
    "elapsed": "{rows} whose End minus Start is not the elapsed time, which was counted from Start.",
    "resized": "{rows} with a start before the submission (resized jobs), counted from the submission.",
    "shards": "{rows} with gres/shard and no gres/gpu: shards were not counted as GPUs.",
    "gpu-types": "{rows} whose GPU types do not add up to gres/gpu: gres/gpu was counted, without a model.",
    "mixed-mig": "{rows} with different MIG slices, counted in their common fraction of a GPU.",
}
_NOT_SUSPENDED = frozenset({"", "00:00:00"})
_EXIT_CODE = re.compile(r"(?:\d+:\d+)?", re.ASCII)
_MAY_BREAK = frozenset({"JobName", "NodeList"})


SpanFields = tuple[int, int | None, int | None, int | None, str]
"""The fields of a `Span`, or one."""


class RowReader:
    """Reads the rows of one export and counts into its `Reading`."""

    def __init__(self, columns: Layout, zone: ZoneInfo, reading: Reading, *, shares: OwnShares = ()) -> None:
        self.columns = columns
        self.shares = shares
        self.clock = Clock(zone)
        self.reading = reading
        self.counts: dict[str, int] = {}
        self.clusters: dict[str, None] = {}
        self.proven = 0
        of = columns.of
        self.job, self.submit, self.start, self.end = of("JobIDRaw"), of("Submit"), of("Start"), of("End")
        self.state, self.account, self.tres = of("State"), of("Account"), of("AllocTRES")
        self.raw_elapsed, self.elapsed, self.suspended = of("ElapsedRaw"), of("Elapsed"), of("Suspended")
        self.job_id, self.name, self.user = of("JobID"), of("JobName"), of("User")
        self.queue, self.qos, self.cluster = of("Partition"), of("QOS"), of("Cluster")
        self.eligible, self.exit_code, self.node_list = of("Eligible"), of("ExitCode"), of("NodeList")
        self.raw_limit, self.limit = of("TimelimitRaw"), of("Timelimit")
        self.nodes, self.cpus = of("NNodes", "AllocNodes"), of("NCPUS", "AllocCPUS")
        self.requested, self.requested_memory = of("ReqTRES"), of("ReqMem")
        # Picked at once: one by one it takes twice as long.
        self.timing = itemgetter(
            self.submit, self.start, self.end, self.state, self.raw_elapsed, self.suspended
        )
        self.shown = itemgetter(
            self.job, self.account, self.user, self.job_id, self.name, self.queue, self.qos, self.tres,
            self.node_list, self.requested, self.submit, self.eligible, self.suspended, self.raw_limit, self.limit,
            self.exit_code, self.cluster,
        )  # fmt: skip

    def read(self, raw: RawRow) -> Row | None:
        """None for a job step: its time is inside its job's."""
        fields = raw.fields
        if fields is None:
            return BadRow(code=raw.fault, raw=raw.text, line=raw.line)
        fields.append("")  # what columns that the export lacks read
        if not raw.fault and not self.columns.repeated:
            fact = self._plain(fields)
            if fact is not None:
                return fact
        return self.carefully(raw, fields)

    def carefully(self, raw: RawRow, fields: list[str]) -> Row | None:
        """All rules. `fields` ends with the empty text for missing columns."""
        try:
            self._check_whole(raw, fields)
            if "." in fields[self.job] and STEP_ID.fullmatch(fields[self.job]):
                self.reading.steps += 1
                return None
            return self._fact(fields, state_word(fields[self.state]), self._span(fields))
        except UnreadableError as unreadable:
            return BadRow(
                code=unreadable.code,
                values=unreadable.values,
                raw=raw.text,
                line=raw.line,
                source_key=self._source_key(fields),
            )

    def _plain(self, fields: list[str]) -> UsageFact | None:
        """Rows that ended, on days of one offset, with End - Start equal to ElapsedRaw; None for others."""
        clock = self.clock
        midnights, times = clock.midnights, clock.times
        submit, start, end, state, elapsed, suspended = self.timing(fields)
        try:
            submitted = midnights[submit[:10]] + times[submit[10:]]
            started = submitted if start == submit else midnights[start[:10]] + times[start[10:]]
            ended = midnights[end[:10]] + times[end[10:]]
            if (
                not submitted <= started <= ended
                or str(ended - started) != elapsed
                or suspended not in _NOT_SUSPENDED
                or (word := state_word(state)) == "RUNNING"
            ):
                return None
            return self._fact(fields, word, (submitted, started, ended, ended, ""))
        except (UnreadableError, LookupError):
            return None

    def _span(self, fields: list[str]) -> Span:
        elapsed = raw_seconds(fields[self.raw_elapsed])
        if elapsed is None:
            elapsed = duration("Elapsed", fields[self.elapsed])
        times = Times(
            submit=fields[self.submit],
            start=fields[self.start],
            end=fields[self.end],
            elapsed=elapsed,
            suspended=duration("Suspended", fields[self.suspended]) or 0,
        )
        return read_span(self.clock, times, state=state_word(fields[self.state]))

    def _fact(self, fields: list[str], state: str, span: SpanFields) -> UsageFact:
        submitted, started, ended, proven, note = span
        (
            job, account, user, job_id, name, queue, qos, listed,
            node_list, requested, submit, eligible, suspended, raw_limit, limit, exit_code, cluster,
        ) = self.shown(fields)  # fmt: skip
        number = job_number(job)
        tres = parse_tres(listed, self.shares)
        cpus = count("NCPUS", fields[self.cpus]) if tres.cpus is None else tres.cpus
        if started is None and tres.cpus is None:
            cpus = 0  # what waits holds none, whatever releases print for it
        nodes = count("NNodes", fields[self.nodes]) if tres.nodes is None else tres.nodes
        fact = UsageFact(  # in the order of its fields: naming them takes as long as all the rest
            f"{number}@{submitted}", account, user, job_id or str(number), name, queue, qos, "",
            tres.gpus, tres.gpu_model, tres.mig_profile, tres.gpu_share, cpus * 1000, tres.memory_mib, nodes,
            node_list, requested or fields[self.requested_memory], time_limit(raw_limit, limit),
            submitted, submitted if eligible == submit else self.clock.loosely(eligible), started, ended,
            proven if ended is None else None,
            0 if suspended in _NOT_SUSPENDED else duration("Suspended", suspended) or 0,
            state, exit_code, 0, tres.billing,
        )  # fmt: skip
        if proven is not None and proven > self.proven:
            self.proven = self.reading.proves_until = proven
        if note or tres.note:
            self._count(note, tres.note)
        if cluster not in self.clusters:
            self._meet(cluster)
        return fact

    def _count(self, *notes: str) -> None:
        for code in filter(None, notes):
            self.counts[code] = self.counts.get(code, 0) + 1

    def _meet(self, cluster: str) -> None:
        if cluster and len(self.clusters) < 10:
            self.clusters[cluster] = None

    def _check_whole(self, raw: RawRow, fields: list[str]) -> None:
        """Raises if the fields may be another row's, cut off, or contradict each other."""
        if raw.fault == "unfinished" and self.columns.cut_unnoticed:
            raise UnreadableError("unfinished")
        if "\n" in raw.text:
            self._check_joined(fields)
        for name, places in self.columns.repeated:
            if len({fields[at] for at in places}) > 1:
                raise UnreadableError("repeated-column", column=name)

    def _check_joined(self, fields: list[str]) -> None:
        """A row put together from several lines counts only if every field that we know looks its part."""
        broken = [
            name
            for name, at in self.columns.position.items()
            if "\n" in fields[at] and name not in _MAY_BREAK
        ]
        limit = fields[self.limit]
        if (
            broken
            or not DISPLAY_ID.fullmatch(fields[self.job_id])
            or not _EXIT_CODE.fullmatch(fields[self.exit_code])
            or (
                fields[self.eligible].lower() not in UNSET
                and self.clock.loosely(fields[self.eligible]) is None
            )
            or (limit and limit[0].isdigit() and time_limit("", limit) is None)
            or not self.clock.moments("Start", fields[self.start])
        ):
            raise UnreadableError("joined")
        state_word(fields[self.state])
        count("NNodes", fields[self.nodes])
        count("NCPUS", fields[self.cpus])
        duration("Suspended", fields[self.suspended])

    def _source_key(self, fields: list[str]) -> str:
        try:
            moments = self.clock.moments("Submit", fields[self.submit])
            return f"{job_number(fields[self.job])}@{moments[0]}" if len(moments) == 1 else ""
        except UnreadableError:
            return ""

    def finish(self) -> None:
        """Writes what was counted as sentences into the reading."""
        for code, number in sorted(self.counts.items()):
            rows = f"{number} row" if number == 1 else f"{number} rows"
            self.reading.notes.append(NOTES[code].format(rows=rows))
        if len(self.clusters) > 1:
            names = excerpt(", ".join(self.clusters))
            self.reading.notes.append(
                f"The rows are of several clusters ({names}): export each to a file of its own."
            )
