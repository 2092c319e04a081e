"""The file `accounting` of Grid Engine and its successors. docs/reference/accounting-logs.md is its page.

The fields are those of sge_accounting(5).
A line is a job, a task of an array, or a run that Grid Engine began again. Univa's and Altair's releases write times in
milliseconds and more fields behind those of all others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from clusters.connectors.accounting.log import LogExport, gpu_count, open_log, prove, whole_number
from clusters.connectors.base import Reading, Row, UnreadableError, UsageFact
from clusters.connectors.mig import GpuType, OwnShares, gpu_type
from portal.excerpt import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

_FIELDS = 45  # of sge_accounting(5); successors write more behind them
_QUEUE, _HOST, _GROUP, _OWNER, _NAME, _JOB, _ACCOUNT = range(7)
_SUBMITTED, _STARTED, _ENDED, _FAILED, _EXIT = range(8, 13)
_PROJECT, _PE, _SLOTS, _TASK = 31, 33, 34, 35
_CATEGORY, _PE_TASK = 39, 41
_COMMENT = "#"
_MILLISECONDS = 10**11  # epoch seconds reach this in the year 5138
_GPUS = frozenset(
    {"gpu", "gpus", "ngpus", "ngpu", "num_gpus", "num_gpu", "gpu_count", "gpu_card", "gpu_cards"}
)
_MODELS = frozenset({"gpu_type", "gpu_model", "gputype", "gpumodel", "gpu_arch", "gpu_name"})
_OF_GPU_MEMORY = re.compile(r"gpu_?(?:mem|vmem|memory|ram).*|.*vram.*")
_RESCHEDULED = 25  # of sge_status(5)
_NONE = "NONE"
_NO_ACCOUNT = frozenset({"", "sge", _NONE})


@dataclass(slots=True)
class GridEngineReader:
    """Reads one file. `gpus_per_slot`: whether the complex of GPUs is consumed by each slot, or once by the job."""

    reading: Reading
    shares: OwnShares = ()
    gpus_per_slot: bool = False
    source_key: str = ""

    def read(self, text: str) -> Row | None:
        if text.startswith(_COMMENT):
            self.reading.steps += 1
            return None
        values = text.rstrip("\n").split(":")
        if len(values) < _FIELDS:
            raise UnreadableError("log-record", scheduler="Grid Engine", text=quoted(text))
        job, task = whole_number("job_number", values[_JOB]), whole_number("task_number", values[_TASK])
        submitted, started, ended = self._times(values)
        shown = f"{job}.{task}" if task else str(job)
        state = _state(values[_FAILED])
        if state == "RESCHEDULED" and not started:  # as 8.1.9 writes it
            raise UnreadableError("grid-engine-rescheduled", job=shown)
        if values[_PE_TASK] != _NONE or not started:  # inside its job's time, or it never began
            self.reading.steps += 1
            return None
        self.source_key = f"{shown}#{started}@{submitted}"
        slots = whole_number("slots", values[_SLOTS])
        gpus, of = _gpus(values[_CATEGORY], self.shares)
        project, account = values[_PROJECT], values[_ACCOUNT]
        parallel = values[_PE] != _NONE
        prove(self.reading, ended)
        return UsageFact(
            source_key=self.source_key,
            account=project
            if project not in {"", _NONE}
            else values[_GROUP]
            if account in _NO_ACCOUNT
            else account,
            user=values[_OWNER],
            job_id=shown,
            name=values[_NAME],
            queue=values[_QUEUE],
            gpus=gpus * (slots if self.gpus_per_slot else 1),
            gpu_model=of.model if gpus else "",
            mig_profile=of.profile if gpus else "",
            gpu_share=of.share if gpus else (1, 1),
            cpu_milli=slots * 1000,
            nodes=0 if parallel else 1,
            node_list=values[_HOST],
            requested=values[_CATEGORY],
            submitted=submitted,
            started=started,
            ended=ended,
            state=state,
            exit_code=values[_EXIT],
        )

    def rest(self) -> Iterator[Row]:
        return iter(())

    def _times(self, values: list[str]) -> tuple[int, int, int]:
        """Of milliseconds, whole seconds that lie within the run."""
        submitted, started, ended = (
            whole_number(name, values[at])
            for name, at in (("submission_time", _SUBMITTED), ("start_time", _STARTED), ("end_time", _ENDED))
        )
        if max(submitted, started, ended) < _MILLISECONDS:
            return submitted, started, ended
        within = (submitted // 1000, -(-started // 1000), ended // 1000)
        return (*within[:2], within[1]) if started <= ended and within[2] < within[1] else within


def _state(failed: str) -> str:
    """`0` is no failure; a code may be followed by its words."""
    code = failed.split(maxsplit=1)[0] if failed.strip() else ""
    if code == "0":
        return "DONE"
    return "RESCHEDULED" if code == str(_RESCHEDULED) else "FAILED"


def _gpus(category: str, shares: OwnShares) -> tuple[int, GpuType]:
    """The hard request for GPUs, and their model. Raises `UnreadableError` for one that says no number."""
    gpus, model, unclear = 0, "", ""
    for name, _, value in (word.partition("=") for word in _hard_requests(category)):
        if name in _GPUS:
            gpus = gpu_count(name, value)
        elif name in _MODELS:
            model = value
        elif "gpu" in name and not _OF_GPU_MEMORY.fullmatch(name) and value not in {"0", "false", "FALSE"}:
            unclear = f"{name}={value}"
    if unclear and not gpus:
        raise UnreadableError("log-gpus", field="category", text=quoted(unclear))
    return gpus, gpu_type(model, shares) if model else GpuType("", "", (1, 1))


def _hard_requests(category: str) -> Iterator[str]:
    words = iter(category.split())
    soft = False
    for word in words:
        if word in {"-soft", "-hard"}:
            soft = word == "-soft"
        elif word == "-l":
            requests = next(words, "")
            yield from () if soft else (request.lower() for request in requests.split(","))


def open_export(path: Path, *, shares: OwnShares = (), gpus_per_slot: bool = False) -> LogExport:
    """A file `accounting`. Raises `ConnectorError`."""

    def make_reader(reading: Reading) -> GridEngineReader:
        return GridEngineReader(reading, shares, gpus_per_slot)

    return open_log(path, scheduler="Grid Engine", is_record=_is_record, make_reader=make_reader)


def _is_record(text: str) -> bool:
    values = text.split(":")
    return len(values) >= _FIELDS and values[_JOB].isdecimal() and values[_ENDED].isdecimal()
