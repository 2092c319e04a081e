"""Which runs failed by their hardware, by a rule: errors of their GPUs, and the states in which they ended."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection

from billing.models import FailureRule
from clusters.gpu_causes import MEMORY_CAUSES, xid_cause
from portal.sql_files import Statements

sql = Statements(__file__, "failures.sql")


@dataclass(frozen=True, slots=True)
class FailedRun:
    """A run and the evidence. `gpu` and `node` are "" where its state says that it failed."""

    tenant: int
    record: int
    job_id: str
    name: str
    user: str
    cluster: str
    ended: datetime
    failed: datetime
    cause: str
    gpu: str
    node: str


def load_failed(rule: FailureRule, *, since: datetime, until: datetime) -> list[FailedRun]:
    """Those that ended in (since, until] and that the rule has not met yet. One query."""
    values: dict[str, Any] = {
        "rule": rule.pk or 0,
        "cluster": rule.cluster,
        "causes": [*map(xid_cause, rule.xids), *(MEMORY_CAUSES if rule.memory else ())],
        "states": [state.upper() for state in rule.states],
        "watch": rule.watch,
        "since": int(since.timestamp()),
        "until": int(until.timestamp()),
    }
    with connection.cursor() as cursor:
        cursor.execute(sql.FAILED, values)
        return [FailedRun(*row) for row in cursor.fetchall()]
