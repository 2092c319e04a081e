"""The limits of an account's association, as sacctmgr names them: read, and written without losing others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusters.connectors.slurm.decode import plain_number

NO_TRES_COUNT = 2**64 - 2  # counts of resources have 64 bits: memory-minutes of a large account need them

TRES = {
    "GrpTRES": ("total",),
    "GrpTRESMins": ("group", "minutes"),
    "GrpTRESRunMins": ("group", "active"),
    "MaxTRESRunMins": ("minutes", "total"),
    "MaxTRESMinsPerJob": ("minutes", "per", "job"),
    "MaxTRESPerJob": ("per", "job"),
    "MaxTRESPerNode": ("per", "node"),
}
"""Where in `max.tres` each limit on resources lies. A write that leaves one out clears it."""

JOBS = {
    "GrpJobs": ("per", "count"),
    "GrpJobsAccrue": ("per", "accruing"),
    "GrpSubmitJobs": ("per", "submitted"),
    "MaxWallDurationPerJob": ("per", "wall_clock"),
    "MaxJobs": ("active",),
    "MaxJobsAccrue": ("accruing",),
    "MaxSubmitJobs": ("total",),
}
"""Where in `max.jobs` each limit on jobs lies. A write that leaves one out keeps it."""

Limits = Mapping[str, int]
"""{"GrpTRES=gres/gpu": 8, "GrpSubmitJobs": 100}: a name that is not there has no limit."""

_CLEAR = -1
_NO_LIMIT = {"set": False, "infinite": True, "number": 0}


def limits_of(association: Mapping[str, Any]) -> dict[str, int]:
    """All limits of one association as GET gives it. Counts are as Slurm has them: minutes, MiB, numbers."""
    maxima = association.get("max") or {}
    limits: dict[str, int] = {}
    for name, path in TRES.items():
        for entry in _at(maxima.get("tres"), path) or ():
            count = plain_number(entry.get("count"), below=NO_TRES_COUNT)
            if count is not None:
                limits[f"{name}={_resource(entry)}"] = count
    for name, path in JOBS.items():
        count = plain_number(_at(maxima.get("jobs"), path))
        if count is not None:
            limits[name] = count
    return limits


def body(*, cluster: str, account: str, user: str = "", current: Limits, target: Limits) -> dict[str, Any]:
    """What to POST so that the limits of the account, or of the user in it, go from `current` to `target`.

    Limits on resources are all told, since those left out would be cleared; of the others only what changes.
    """
    tres: dict[str, Any] = {}
    for name, path in TRES.items():
        entries = [_entry(key, target.get(key)) for key in sorted({*current, *target}) if _kind(key) == name]
        _put(tres, path, entries)
    jobs: dict[str, Any] = {}
    for name, path in JOBS.items():
        if current.get(name) != target.get(name):
            count = target.get(name)
            _put(
                jobs, path, _NO_LIMIT if count is None else {"set": True, "infinite": False, "number": count}
            )
    limits = {"tres": tres, **({"jobs": jobs} if jobs else {})}
    return {
        "associations": [
            {"account": account, "cluster": cluster, "user": user, "partition": "", "max": limits},
        ]
    }


def _kind(key: str) -> str:
    return key.partition("=")[0] if "=" in key else ""


def _entry(key: str, count: int | None) -> dict[str, Any]:
    kind, _, name = key.partition("=")[2].partition("/")
    return {"type": kind, "name": name, "count": _CLEAR if count is None else count}


def _resource(entry: Mapping[str, Any]) -> str:
    return f"{entry['type']}/{entry['name']}" if entry.get("name") else str(entry.get("type", ""))


def _at(nested: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        if not isinstance(nested, dict):
            return None
        nested = nested.get(key)
    return nested


def _put(nested: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for key in path[:-1]:
        nested = nested.setdefault(key, {})
    nested[path[-1]] = value
