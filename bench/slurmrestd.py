"""The same made-up jobs as slurmrestd v0.0.42 answers them, with all fields of a row and its usual line breaks."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from bench.jobs import Job, account_name

GRES = {"a100": 1002, "h100": 1003, "l40s": 1004}


def body(workload: Iterable[Job]) -> bytes:
    """The whole answer: some 5 KB for each job."""
    answer = {
        "jobs": [_row(job) for job in workload],
        "meta": {
            "plugin": {"type": "openapi/slurmdbd", "data_parser": "data_parser/v0.0.42"},
            "slurm": {
                "version": {"major": "24", "micro": "3", "minor": "11"},
                "release": "24.11.3",
                "cluster": "gpu1",
            },
        },
        "errors": [],
        "warnings": [],
    }
    return json.dumps(answer, indent=2).encode()


def _row(job: Job) -> dict[str, Any]:
    return {
        "account": account_name(job.account),
        "comment": {"administrator": "", "job": "", "system": ""},
        "allocation_nodes": 1,
        "array": {
            "job_id": 0, "limits": {"max": {"running": {"tasks": 0}}}, "task_id": _unset(), "task": ""
        },
        "association": {
            "account": account_name(job.account), "cluster": "gpu1", "partition": "", "user": job.user, "id": 9
        },
        "block": "", "cluster": "gpu1", "constraints": "", "container": "",
        "derived_exit_code": _exit(),
        "time": _times(job),
        "exit_code": _exit(),
        "extra": "", "failed_node": "", "flags": ["STARTED_ON_BACKFILL", "START_RECEIVED"], "group": job.user,
        "het": {"job_id": 0, "job_offset": _unset()},
        "job_id": job.number, "name": f"train-{job.number % 97}", "licenses": "", "mcs": {"label": ""},
        "nodes": f"node{job.number % 200:03d}", "partition": job.queue, "hold": False, "priority": _set(10_000),
        "qos": "normal", "qosreq": "",
        "required": {"CPUs": job.cpus, "memory_per_cpu": _set(4096), "memory_per_node": _unset()},
        "kill_request_user": "", "restart_cnt": 0, "reservation": {"id": 0, "name": ""}, "script": "",
        "stdin_expanded": "/dev/null", "stdout_expanded": f"/home/{job.user}/run/{job.number}.out",
        "stderr_expanded": "", "stdout": f"/home/{job.user}/run/%j.out", "stderr": "", "stdin": "/dev/null",
        "state": {"current": [job.state], "reason": "None"},
        "steps": [],
        "submit_line": f"sbatch --gres=gpu:{job.model}:{job.gpus} train.sh",
        "tres": {"allocated": _tres(job, allocated=True), "requested": _tres(job, allocated=False)},
        "used_gres": "", "user": job.user, "wckey": {"wckey": "", "flags": []},
        "working_directory": f"/home/{job.user}/run",
    }  # fmt: skip


def _times(job: Job) -> dict[str, Any]:
    none = {"seconds": 0, "microseconds": 0}
    return {
        "elapsed": job.ended - job.started, "eligible": job.submitted, "end": job.ended,
        "planned": _set(job.started - job.submitted), "start": job.started, "submission": job.submitted,
        "suspended": 0, "system": none, "limit": _set(1440), "total": none, "user": none,
    }  # fmt: skip


def _tres(job: Job, *, allocated: bool) -> list[dict[str, Any]]:
    counts = [("cpu", "", 1, job.cpus), ("mem", "", 2, job.memory * 1024)]
    counts += [("energy", "", 3, -2)] if allocated else []
    counts += [("node", "", 4, 1), ("billing", "", 5, job.cpus), ("gres", "gpu", 1001, job.gpus)]
    counts += [("gres", f"gpu:{job.model}", GRES[job.model], job.gpus)]
    return [{"type": kind, "name": name, "id": place, "count": count} for kind, name, place, count in counts]


def _exit() -> dict[str, Any]:
    return {"status": ["SUCCESS"], "return_code": _set(0), "signal": {"id": _unset(), "name": ""}}


def _set(number: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": number}


def _unset() -> dict[str, Any]:
    return {"set": False, "infinite": False, "number": 0}
