"""Whether the usage that a Slurm records can be billed: GPUs in it, everybody's, at the right time."""

from __future__ import annotations

from typing import Any

from clusters.connectors.clocks import MEND, Clocks
from clusters.connectors.slurm import query
from clusters.connectors.slurm.acts import LIMITS_FROM
from clusters.connectors.slurm.decode import NO_COUNT
from clusters.connectors.slurm.session import CheckSession, Params

NOTABLE_SKEW = 5  # seconds between the clocks above which they are told
SAMPLES = (3_600, 86_400)  # seconds of usage to look at: the longer where the shorter has too few
ENOUGH = 20  # rows of a sample
AHEAD = 60  # seconds that are asked for beyond now, should Slurm's clock be ahead
MANY = 3_000  # rows above which nothing is counted twice: building them costs slurmrestd seconds
GPU, TYPED = "gpu", "gpu:"


def tracked(visit: CheckSession, subject: str) -> None:
    """Which GPUs slurmdbd has ever been told to record; what is not recorded cannot be had later."""
    tres = visit.rest.get(visit.rest.slurmdb("tres"), key="TRES")["TRES"]
    names = {str(entry.get("name") or "") for entry in tres if entry.get("type") == "gres"}
    typed = sorted(name.removeprefix(TYPED) for name in names if name.startswith(TYPED))
    models = sorted(model for model in visit.models if model)
    setting = ",".join(["gres/gpu", *(f"gres/gpu:{model}" for model in models or ["a100"])])
    mend = f"AccountingStorageTRES={setting}  # in slurm.conf; then restart slurmctld"
    if GPU not in names and not typed:
        visit.fail(
            subject,
            "Slurm records no GPUs, so their usage is lost for good, job by job, until it does.",
            mend,
        )
    elif not typed:
        visit.warn(
            subject,
            "Slurm records gres/gpu without models: all GPUs of a job count, but which model they were is told by "
            "the partition alone.",
            mend,
        )
    elif GPU not in names:
        visit.warn(
            subject,
            f"Slurm records GPUs by model only ({', '.join(typed)}): GPUs of any other model are lost for good.",
            mend,
        )
    elif missing := [model for model in models if model not in typed]:
        visit.warn(
            subject, f"Slurm records no model for {', '.join(missing)}; they count as GPUs alone.", mend
        )
    else:
        visit.ok(subject, f"Slurm records gres/gpu and the models {', '.join(typed)}.")


def sample(visit: CheckSession, subject: str) -> None:
    """Whether jobs of the last hour, or day, carry GPUs."""
    for span in SAMPLES:
        visit.params = query.window(visit.rest.api, since=visit.now - span, until=visit.now + AHEAD)
        visit.rows = _rows(visit, visit.params)
        if len(visit.rows) >= ENOUGH:
            break
    started = [row for row in visit.rows if _has_started(row)]
    with_gpus = sum(_has_gpus(row) for row in started)
    hours = "hour" if span == SAMPLES[0] else "day"
    if not started:
        visit.warn(subject, "No job ran in the last day, so it is not known whether jobs carry their GPUs.")
    elif not with_gpus and visit.models:
        visit.warn(
            subject,
            f"None of {len(started)} jobs of the last {hours} carries a GPU, and nodes have "
            f"{sum(visit.models.values())}.",
            "scontrol show config | grep AccountingStorageTRES",
        )
    else:
        visit.ok(subject, f"{with_gpus} of {len(started)} jobs of the last {hours} carry GPUs.")


def privacy(visit: CheckSession, subject: str) -> None:
    """An ordinary user under PrivateData gets its own rows and no word of the others."""
    others = {row.get("user") for row in visit.rows} - {visit.user}
    mend = f"sacctmgr modify user {visit.user} set adminlevel=Operator"
    if visit.operates:
        visit.ok(subject, f"{visit.user} sees everybody's jobs, whatever PrivateData says.")
    elif not visit.rows:
        visit.warn(
            subject, f"{visit.user} saw no job at all, so it is not known whether it sees others'.", mend
        )
    elif others:
        visit.warn(
            subject,
            f"{visit.user} sees jobs of others, but only as long as PrivateData does not name jobs.",
            mend,
        )
    else:
        visit.fail(
            subject,
            f"{visit.user} sees no job but its own: probably PrivateData has jobs, and everybody else's are hidden "
            "from it without a word.",
            mend,
        )


def canary(visit: CheckSession, subject: str) -> None:
    """Some releases answer nothing, or less, to our flags. Then no amount could be trusted."""
    if len(visit.rows) > MANY:
        same, counts = query.canary(visit.rest, now=visit.now), "of a quarter of an hour"
    else:
        plain = {name: visit.params[name] for name in ("start_time", "end_time")}
        flagged, bare = _twice(visit, plain)
        same, counts = flagged == bare, f"({flagged} with our flags, {bare} without)"
    if same:
        visit.ok(subject, f"The rows {counts} agree.")
    else:
        visit.fail(
            subject,
            f"The rows {counts} do not agree, so this release answers our questions otherwise than any we know: "
            "nothing is read from it.",
            "Update Slurm to its newest point release, or ClusterTab.",
        )


def _twice(visit: CheckSession, plain: Params) -> tuple[int, int]:
    """Counts with and without our flags; counted anew once, should a row have come in between."""
    for _ in range(2):
        bare = len(_rows(visit, plain))
        flagged = len(_rows(visit, visit.params))
        if flagged == bare:
            break
    return flagged, bare


def clock(visit: CheckSession, subject: str) -> None:
    """slurmctld's present, and slurmdbd's: a running job's start and elapsed seconds together."""
    running = [row["time"] for row in visit.rows if _has_started(row) and not _second(row["time"].get("end"))]
    present = visit.present
    running_clocks = [Clocks(present, _present(times)) for times in running]
    readings = [
        reading
        for reading in (visit.rest.clocks(), min(running_clocks, key=_distance, default=None))
        if reading
    ]
    if not readings:
        visit.fail(
            subject,
            "Slurm does not tell its time, and no job runs: the watermark stays, since it may not pass Slurm's time.",
            "let the proxy before slurmrestd pass GET /slurm/*/diag",
        )
        return
    clocks = max(readings, key=_distance)
    if not clocks.agree:
        sentence = clocks.sentence("Slurm")
        visit.fail(
            subject, f"{sentence} Nothing is read: runs would begin and end in the wrong period.", MEND
        )
    elif _distance(clocks) > NOTABLE_SKEW:
        visit.warn(subject, clocks.sentence("Slurm"), MEND)
    else:
        visit.ok(subject, f"Slurm's clock agrees with ours to {_distance(clocks)} s.")


def _distance(clocks: Clocks) -> int:
    return abs(clocks.apart)


def _present(times: dict[str, Any]) -> int:
    return sum(_second(times.get(part)) for part in ("start", "elapsed", "suspended"))


def acting(visit: CheckSession, subject: str) -> None:
    """What can be done to jobs and accounts. Nothing of it is needed for billing."""
    if not visit.operates:
        visit.warn(
            subject,
            f"{visit.user or 'The user'} may not act on others' jobs and accounts; billing does not need it.",
        )
    elif visit.rest.api.number >= LIMITS_FROM:
        visit.ok(subject, "Jobs can be held, released and cancelled, and accounts blocked by their limits.")
    else:
        visit.warn(
            subject,
            "Accounts cannot be blocked by their limits: before 23.11 slurmrestd drops such a change or crashes "
            "from it. Jobs can be cancelled, and held and released over any version but v0.0.39.",
            "Update to Slurm 23.11 or later.",
        )


def _rows(visit: CheckSession, params: Params) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = visit.rest.get(visit.rest.slurmdb("jobs"), params, key="jobs")["jobs"]
    its = visit.cluster or visit.rest.api.cluster
    return [row for row in rows if not its or row.get("cluster") in {its, "", None}]


def _has_started(row: dict[str, Any]) -> bool:
    return _second((row.get("time") or {}).get("start")) > 0


def _has_gpus(row: dict[str, Any]) -> bool:
    allocated = (row.get("tres") or {}).get("allocated") or ()
    return any(
        entry.get("type") == "gres"
        and ((name := str(entry.get("name") or "")) == GPU or name.startswith(TYPED))
        and _second(entry.get("count")) > 0
        for entry in allocated
    )


def _second(value: Any) -> int:
    """A whole number in either form; 0 for what is not set."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") else 0
    return value if isinstance(value, int) and 0 < value < NO_COUNT else 0
