"""How each API version writes what the stand-in knows."""

from __future__ import annotations

from typing import Any

from tests.fakes.slurm_world import JOB_LIMITS, TRES_LIMITS, Association, Job, World

TRES_IDS = {"cpu": 1, "mem": 2, "node": 4, "billing": 5, "gres/gpu": 1001, "gres/gpu:a100": 1002}


def number(value: int | None, *, infinite: bool = False) -> dict[str, Any]:
    return {"set": value is not None, "infinite": value is None and infinite, "number": value or 0}


def tres(name: str, count: int) -> dict[str, Any]:
    kind, _, of = name.partition("/")
    return {"type": kind, "name": of, "id": TRES_IDS.get(name, 1999), "count": count}


def nested(flat: dict[str, Any]) -> dict[str, Any]:
    """{"per.job": x} as {"per": {"job": x}}"""
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        *above, last = path.split(".")
        inner = tree
        for key in above:
            inner = inner.setdefault(key, {})
        inner[last] = value
    return tree


def association(row: Association, world: World, *, minor: int, own_only: bool) -> dict[str, Any]:
    """One association as GET gives it in v0.0.38 or from v0.0.40 on."""
    old = minor < 39
    limits = world.shown(row, own_only=own_only)
    unset = None if old else number(None, infinite=True)
    identity = {
        "account": row.account,
        "cluster": "lab",
        "partition": "",
        "user": row.user,
        "id": row.id,
    }
    shown: dict[str, Any] = {
        "account": row.account,
        "cluster": "lab",
        "default": {"qos": None if old else ""},
        "flags": [],
        "max": {
            "jobs": nested({path: _count(row.jobs.get(path), old=old) for path in JOB_LIMITS}),
            "tres": nested(
                {path: [tres(*limit) for limit in limits.get(path, {}).items()] for path in TRES_LIMITS}
            ),
            "per": {"account": {"wall_clock": unset}},
        },
        "is_default": 0 if old else False,
        "min": {"priority_threshold": unset},
        "parent_account": row.parent if not row.user else (None if old else ""),
        "partition": None if old else "",
        "priority": unset,
        "qos": ["normal"],
        "shares_raw": row.shares,
        "user": row.user or (None if old else ""),
    }
    if old:
        return {**shown, "usage": None}
    return {
        **shown,
        "accounting": [],
        "comment": "",
        "lineage": f"/{row.account}/",
        "id": identity if minor == 40 else row.id,
    }


def _count(value: int | None, *, old: bool) -> Any:
    return value if old else number(value, infinite=True)


def live_job(job: Job, *, minor: int) -> dict[str, Any]:
    """One job as slurmctld tells it."""
    plain = minor < 40

    def instant(value: int) -> Any:
        return value if plain else number(value)

    def count(value: int | None) -> Any:
        return value if minor < 39 else number(value)

    is_on_hold = job.reason in {"JobHeldAdmin", "JobHeldUser"}
    shown = {
        "account": job.account,
        "user_name": job.user,
        "job_id": job.id,
        "name": job.name,
        "cluster": "lab",
        "partition": "a100",
        "job_state": job.state if plain else [job.state],
        "state_reason": job.reason,
        "array_job_id": count(job.id if job.array else 0),
        "array_task_id": count(None),
        "array_task_string": job.array,
        "priority": count(0 if is_on_hold else 10_000),
        "submit_time": instant(job.submitted),
        "start_time": instant(job.started),
        "end_time": instant(job.ended),
        "tres_alloc_str": tres_text(job) if job.started else "",
        "tres_req_str": tres_text(job),
    }
    return shown if minor < 39 else {**shown, "hold": is_on_hold}


def tres_text(job: Job) -> str:
    return f"cpu=4,gres/gpu={job.gpus}" if job.gpus else "cpu=4"


def accounted_job(
    job: Job, *, minor: int, cluster: str, tracked: tuple[str, ...], now: int
) -> dict[str, Any]:
    """One row of the accounting database."""
    counts = {"cpu": 4, "node": 1, "gres/gpu": job.gpus, "gres/gpu:a100": job.gpus}
    resources = ("cpu", "node", *tracked)
    return {
        "account": job.account,
        "user": job.user,
        "cluster": cluster,
        "job_id": job.id,
        "name": job.name,
        "partition": "a100",
        "state": {"current": job.state if minor < 40 else [job.state], "reason": job.reason},
        "time": {
            "submission": job.submitted,
            "eligible": job.submitted,
            "start": job.started,
            "end": job.ended,
            "elapsed": (job.ended or now) - job.started if job.started else 0,
            "suspended": 0,
        },
        "tres": {
            "allocated": [tres(name, count) for name, count in counts.items() if name in resources]
            if job.started
            else [],
            "requested": [],
        },
    }
