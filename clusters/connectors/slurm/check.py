"""Test connection: is this Slurm set up so that its usage can be billed? In sentences, with what mends each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from clusters.connectors.base import ConnectorError
from clusters.connectors.clocks import MEND, Clocks
from clusters.connectors.findings import Finding, Level
from clusters.connectors.mig import OwnShares
from clusters.connectors.slurm import check_access
from clusters.connectors.slurm.acts import LIMITS_FROM
from clusters.connectors.slurm.check_access import CheckSession, Params
from clusters.connectors.slurm.check_shards import shards
from clusters.connectors.slurm.decode import plain_number
from clusters.connectors.slurm.windows import flags_agree, window_params

if TYPE_CHECKING:
    from clusters.connectors.slurm.rest import SlurmRest

NOTABLE_SKEW = 5  # seconds between the clocks above which they are told
SAMPLES = (3_600, 86_400)  # seconds of usage to look at: the longer where the shorter has too few
ENOUGH = 20  # rows of a sample
AHEAD = 60  # seconds that are asked for beyond now, should Slurm's clock be ahead
MANY = 3_000  # rows above which nothing is counted twice: building them costs slurmrestd seconds
GPU, TYPED = "gpu", "gpu:"


def tracked(session: CheckSession, subject: str) -> None:
    """Which GPUs slurmdbd has ever been told to record; what is not recorded cannot be had later."""
    tres = session.rest.get(session.rest.slurmdb("tres"), key="TRES")["TRES"]
    names = session.recorded = {str(entry.get("name") or "") for entry in tres if entry.get("type") == "gres"}
    typed = sorted(name.removeprefix(TYPED) for name in names if name.startswith(TYPED))
    models = sorted(model for model in session.models if model)
    setting = ",".join(["gres/gpu", *(f"gres/gpu:{model}" for model in models or ["a100"])])
    mend = f"AccountingStorageTRES={setting}  # in slurm.conf; then restart slurmctld"
    if GPU not in names and not typed:
        session.fail(
            subject,
            "Slurm records no GPUs, so their usage is lost for good, job by job, until it does.",
            mend,
        )
    elif not typed:
        session.warn(
            subject,
            "Slurm records gres/gpu without models: all GPUs of a job count, but which model they were is told by "
            "the partition alone.",
            mend,
        )
    elif GPU not in names:
        session.warn(
            subject,
            f"Slurm records GPUs by model only ({', '.join(typed)}): GPUs of any other model are lost for good.",
            mend,
        )
    elif missing := [model for model in models if model not in typed]:
        session.warn(
            subject, f"Slurm records no model for {', '.join(missing)}; they count as GPUs alone.", mend
        )
    else:
        session.ok(subject, f"Slurm records gres/gpu and the models {', '.join(typed)}.")


def sample(session: CheckSession, subject: str) -> None:
    """Whether jobs of the last hour, or day, carry GPUs."""
    for span in SAMPLES:
        session.params = window_params(session.rest.api, since=session.now - span, until=session.now + AHEAD)
        session.rows = _rows(session, session.params)
        if len(session.rows) >= ENOUGH:
            break
    started = [row for row in session.rows if _has_started(row)]
    with_gpus = sum(_has_gpus(row) for row in started)
    hours = "hour" if span == SAMPLES[0] else "day"
    if not started:
        session.warn(subject, "No job ran in the last day, so it is not known whether jobs carry their GPUs.")
    elif not with_gpus and session.models:
        session.warn(
            subject,
            f"None of {len(started)} jobs of the last {hours} carries a GPU, and nodes have "
            f"{sum(session.models.values())}.",
            "scontrol show config | grep AccountingStorageTRES",
        )
    else:
        session.ok(subject, f"{with_gpus} of {len(started)} jobs of the last {hours} carry GPUs.")


def privacy(session: CheckSession, subject: str) -> None:
    """An ordinary user under PrivateData gets its own rows and no word of the others."""
    others = {row.get("user") for row in session.rows} - {session.user}
    mend = f"sacctmgr modify user {session.user} set adminlevel=Operator"
    if session.operates:
        session.ok(subject, f"{session.user} sees everybody's jobs, whatever PrivateData says.")
    elif not session.rows:
        session.warn(
            subject, f"{session.user} saw no job at all, so it is not known whether it sees others'.", mend
        )
    elif others:
        session.warn(
            subject,
            f"{session.user} sees jobs of others, but only as long as PrivateData does not name jobs.",
            mend,
        )
    else:
        session.fail(
            subject,
            f"{session.user} sees no job but its own: probably PrivateData has jobs, and everybody else's are hidden "
            "from it without a word.",
            mend,
        )


def canary(session: CheckSession, subject: str) -> None:
    """Some releases answer nothing, or less, to our flags. Then no amount could be trusted."""
    if len(session.rows) > MANY:
        same, counts = flags_agree(session.rest, now=session.now), "of a quarter of an hour"
    else:
        plain = {name: session.params[name] for name in ("start_time", "end_time")}
        flagged, bare = _twice(session, plain)
        same, counts = flagged == bare, f"({flagged} with our flags, {bare} without)"
    if same:
        session.ok(subject, f"The rows {counts} agree.")
    else:
        session.fail(
            subject,
            f"The rows {counts} do not agree, so this release answers our questions otherwise than any we know: "
            "nothing is read from it.",
            "Update Slurm to its newest point release, or ClusterTab.",
        )


def _twice(session: CheckSession, plain: Params) -> tuple[int, int]:
    """Counts with and without our flags; counted anew once, should a row have come in between."""
    for _ in range(2):
        bare = len(_rows(session, plain))
        flagged = len(_rows(session, session.params))
        if flagged == bare:
            break
    return flagged, bare


def clock(session: CheckSession, subject: str) -> None:
    """slurmctld's present, and slurmdbd's: a running job's start and elapsed seconds together."""
    running = [
        row["time"] for row in session.rows if _has_started(row) and not _second(row["time"].get("end"))
    ]
    present = session.present
    running_clocks = [Clocks(present, _present(times)) for times in running]
    readings = [
        reading
        for reading in (session.rest.clocks(), min(running_clocks, key=_distance, default=None))
        if reading
    ]
    if not readings:
        session.fail(
            subject,
            "Slurm does not tell its time, and no job runs: the watermark stays, since it may not pass Slurm's time.",
            "let the proxy before slurmrestd pass GET /slurm/*/diag",
        )
        return
    clocks = max(readings, key=_distance)
    if not clocks.agree:
        sentence = clocks.sentence("Slurm")
        session.fail(
            subject, f"{sentence} Nothing is read: runs would begin and end in the wrong period.", MEND
        )
    elif _distance(clocks) > NOTABLE_SKEW:
        session.warn(subject, clocks.sentence("Slurm"), MEND)
    else:
        session.ok(subject, f"Slurm's clock agrees with ours to {_distance(clocks)} s.")


def _distance(clocks: Clocks) -> int:
    return abs(clocks.apart)


def _present(times: dict[str, Any]) -> int:
    return sum(_second(times.get(part)) for part in ("start", "elapsed", "suspended"))


def acting(session: CheckSession, subject: str) -> None:
    """What can be done to jobs and accounts. Nothing of it is needed for billing."""
    if not session.operates:
        session.warn(
            subject,
            f"{session.user or 'The user'} may not act on others' jobs and accounts; billing does not need it.",
        )
    elif session.rest.api.number >= LIMITS_FROM:
        session.ok(subject, "Jobs can be held, released and cancelled, and accounts blocked by their limits.")
    else:
        session.warn(
            subject,
            "Accounts cannot be blocked by their limits: before 23.11 slurmrestd drops such a change or crashes "
            "from it. Jobs can be cancelled, and held and released over any version but v0.0.39.",
            "Update to Slurm 23.11 or later.",
        )


def _rows(session: CheckSession, params: Params) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = session.rest.get(session.rest.slurmdb("jobs"), params, key="jobs")["jobs"]
    its = session.cluster or session.rest.api.cluster
    return [row for row in rows if not its or row.get("cluster") in {its, "", None}]


def _has_started(row: dict[str, Any]) -> bool:
    return _second((row.get("time") or {}).get("start")) > 0


def _has_gpus(row: dict[str, Any]) -> bool:
    allocated = (row.get("tres") or {}).get("allocated") or ()
    return any(
        entry.get("type") == "gres"
        and str(entry.get("name") or "").split(":")[0] in {GPU, "shard"}
        and _second(entry.get("count")) > 0
        for entry in allocated
    )


def _second(value: Any) -> int:
    """A whole number in either form; 0 for what is not set."""
    return plain_number(value) or 0


__all__ = ["Finding", "Level", "examine"]

_CHECKS: tuple[tuple[str, tuple[str, ...], Callable[[CheckSession, str], None]], ...] = (
    ("Address", (), check_access.reach),
    ("Daemons", ("slurmrestd",), check_access.daemons),
    ("AdminLevel", ("slurmdbd",), check_access.rights),
    ("Cluster", ("slurmdbd",), check_access.clusters),
    ("AccountingStorageTRES", ("slurmdbd",), tracked),
    ("Shards", ("slurmctld", "slurmdbd"), shards),
    ("Sample", ("slurmdbd",), sample),
    ("PrivateData", ("slurmdbd",), privacy),
    ("Canary", ("slurmdbd",), canary),
    ("Clock", ("slurmdbd",), clock),
    ("Acting", ("slurmdbd",), acting),
)
"""Subject, who has to have answered before, and the check itself."""


def examine(rest: SlurmRest, *, now: int, cluster: str = "", shares: OwnShares = ()) -> list[Finding]:
    """All checks, in the order in which one mends. `now` is our clock in epoch seconds; `cluster` the Slurm
    cluster that the connection names, "" for whichever it answers for; `shares` the operator's rows. Never raises:
    what cannot be checked is a finding too."""
    session = CheckSession(rest, now, cluster, shares=shares)
    for subject, needs, check in _CHECKS:
        missing = [need for need in needs if need not in session.answers]
        if missing:
            session.warn(subject, f"Not checked, since {' and '.join(missing)} did not answer.")
            continue
        try:
            check(session, subject)
        except ConnectorError as error:
            session.fail(subject, str(error))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            session.fail(
                subject,
                f"The answer has another shape than any that this release was tried with ({type(error).__name__}): "
                "update ClusterTab, or report the versions above.",
            )
    return session.findings
