"""What `sacct` of the same Slurm says, read by the plainest code there is: no reader of ours is in here."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from clusters.connectors.sacct.layout import COMMAND
from tests.integration.slurm_lab import Lab

FORMAT = "JobIDRaw,JobID,JobName,State,Submit,Start,End,ElapsedRaw,AllocTRES"


@dataclass(frozen=True, slots=True)
class SacctRow:
    """What one row of sacct says was held, and for how long."""

    job_id: str
    name: str
    state: str
    gpus: int
    seconds: int | None  # None: it has not ended

    @property
    def gpu_seconds(self) -> int:
        assert self.seconds is not None
        return self.gpus * self.seconds


def oracle(lab: Lab, *, since: int) -> dict[str, SacctRow]:
    """Every row since that epoch second, by raw job id and submission."""
    output = lab.slurm(
        "sacct", "--duplicates", "--parsable2", "--allusers", "--noconvert", "-X",
        "-S", local(since), "--format", FORMAT,
    )  # fmt: skip
    header, *lines = output.splitlines()
    assert header == FORMAT.replace(",", "|")
    rows = {}
    for line in lines:
        raw, job_id, name, state, submit, start, end, elapsed, tres = line.split("|")
        submitted = _second(submit)
        # Older Slurm gives the second row of a resized job the first start and the whole time; the first row has
        # that until then.
        earlier = max(0, submitted - _second(start)) if start[:1].isdigit() else 0
        rows[f"{raw}@{submitted}"] = SacctRow(
            job_id, name, state, _gpus(tres), None if end == "Unknown" else int(elapsed) - earlier
        )
    assert len(rows) == len(lines)
    return rows


def _second(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def _gpus(tres: str) -> int:
    counts = dict(item.split("=") for item in tres.split(",") if item)
    return int(counts.get("gres/gpu", 0))


def export(lab: Lab, path: Path, *, since: int) -> Path:
    """A file as docs/reference/sacct.md has operators make it."""
    command = COMMAND.replace("2026-01-01", local(since)).replace("2026-02-01", "now").split()
    path.write_text(lab.slurm(*command[1:]))  # the lab's own clock is UTC already
    return path


def local(moment: int) -> str:
    """As Slurm's commands take a moment, in the lab's zone, which is UTC."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S")
