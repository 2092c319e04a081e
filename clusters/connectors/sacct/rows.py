"""One row of sacct → one `UsageFact`, or a `BadRow` that says why not: all rules.

`columns` reads plain rows (nearly all) by a short path that only accepts what needs no thought."""

from __future__ import annotations

import re
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
from clusters.connectors.sacct.tres import energy, parse_tres
from portal.excerpt import excerpt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from zoneinfo import ZoneInfo

    from clusters.connectors.sacct.layout import Layout, RawRow

NOTES = {
    "elapsed": "{rows} whose End minus Start is not the elapsed time, which was counted from Start.",
    "resized": "{rows} with a start before the submission (resized jobs), counted from the submission.",
    "gpu-types": "{rows} whose GPU types do not add up to gres/gpu: gres/gpu was counted, without a model.",
    "mixed-parts": "{rows} with different parts of GPUs, counted in their common fraction of a GPU.",
}
_EXIT_CODE = re.compile(r"(?:\d+:\d+)?", re.ASCII)
_MAY_BREAK = frozenset({"JobName", "NodeList"})


class RowReader:
    """Reads the rows of one export and counts into its `Reading`."""

    def __init__(self, columns: Layout, zone: ZoneInfo, reading: Reading, *, shares: OwnShares = ()) -> None:
        self.columns = columns
        self.shares = shares
        self.clock = Clock(zone)
        self.reading = reading
        self.counts: dict[str, int] = {}
        self.clusters: dict[str, None] = {}
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
        self.energy = of("ConsumedEnergyRaw")

    def rows(self, raw_rows: Iterable[RawRow]) -> Iterator[Row]:
        """What the rows say, without job steps."""
        for raw in raw_rows:
            row = self.read(raw)
            if row is not None:
                yield row

    def read(self, raw: RawRow) -> Row | None:
        """None for a job step: its time is inside its job's."""
        fields = raw.fields
        if fields is None:
            return BadRow(code=raw.fault, raw=raw.text, line=raw.line)
        return self.carefully(raw, [*fields, ""])  # what columns that the export lacks read

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

    def _fact(self, fields: list[str], state: str, span: Span) -> UsageFact:
        number = job_number(fields[self.job])
        tres = parse_tres(fields[self.tres], self.shares, fields[self.node_list])
        cpus = count("NCPUS", fields[self.cpus]) if tres.cpus is None else tres.cpus
        if span.started is None and tres.cpus is None:
            cpus = 0  # what waits holds none, whatever releases print for it
        submit, eligible = fields[self.submit], fields[self.eligible]
        fact = UsageFact(
            source_key=f"{number}@{span.submitted}",
            account=fields[self.account],
            user=fields[self.user],
            job_id=fields[self.job_id] or str(number),
            name=fields[self.name],
            queue=fields[self.queue],
            qos=fields[self.qos],
            gpus=tres.gpus,
            gpu_model=tres.gpu_model,
            mig_profile=tres.mig_profile,
            gpu_share=tres.gpu_share,
            cpu_milli=cpus * 1000,
            memory_mib=tres.memory_mib,
            nodes=count("NNodes", fields[self.nodes]) if tres.nodes is None else tres.nodes,
            node_list=fields[self.node_list],
            requested=fields[self.requested] or fields[self.requested_memory],
            time_limit=time_limit(fields[self.raw_limit], fields[self.limit]),
            submitted=span.submitted,
            eligible=span.submitted if eligible == submit else self.clock.loosely(eligible),
            started=span.started,
            ended=span.ended,
            seen_until=span.proven if span.ended is None else None,
            suspended=duration("Suspended", fields[self.suspended]) or 0,
            state=state,
            exit_code=fields[self.exit_code],
            billing=tres.billing,
            energy=energy(fields[self.tres], fields[self.energy]),
        )
        self.prove(span.proven)
        self.note(span.note, tres.note)
        self.meet(fields[self.cluster])
        return fact

    def prove(self, moment: int | None) -> None:
        """The scheduler was still writing at that moment."""
        if moment is not None and moment > (self.reading.proves_until or 0):
            self.reading.proves_until = moment

    def note(self, *codes: str) -> None:
        for code in filter(None, codes):
            self.counts[code] = self.counts.get(code, 0) + 1

    def meet(self, cluster: str) -> None:
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
