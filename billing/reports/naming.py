"""What the groups of a report are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection

from billing.models import RatedJob
from billing.reports.shapes import LABELS, By
from portal.core.tenants.models import Project, Tenant
from portal.sql_files import Statements

sql = Statements(__file__, "report.sql")

Key = tuple[Any, ...]
Names = Mapping[str, str]


def named(by: By, keys: Sequence[Key], *, own: bool) -> dict[Key, Names | None]:
    """By key the texts of LABELS; None is what a limit left out. Two queries at most."""
    texts: dict[Key, tuple[str, ...]]
    match by:
        case By.TENANT:
            slugs = _tenants(key[0] for key in keys)
            texts = {key: (slugs.get(key[0], ""),) for key in keys}
        case By.PROJECT:
            slugs = _tenants(key[0] for key in keys)
            wanted = {key[1] for key in keys if key[1] is not None}
            projects = dict(Project.objects.filter(pk__in=wanted).values_list("pk", "name"))
            texts = {key: (slugs.get(key[0], ""), projects.get(key[1], "")) for key in keys}
        case By.POD:
            return _pods(keys, own=own)
        case _:
            texts = {key: tuple(str(part) for part in key) for key in keys}
    return {key: dict(zip(LABELS[by], found, strict=True)) for key, found in texts.items()}


@dataclass(frozen=True, slots=True)
class Run:
    """A run as lists name it."""

    cluster: str
    account: str
    user: str
    job_id: str
    name: str
    gpu_model: str
    slug: str = ""  # of a tenant that it is a job of


def run_names(records: Sequence[int], *, own: str) -> dict[int, Run]:
    """Runs by record. `own` is the slug of the tenant in whose scope it runs, "" for operators. Two queries at most."""
    with connection.cursor() as cursor:
        cursor.execute(sql.RUNS_OWN if own else sql.RUNS, {"records": [*records]})
        rows = cursor.fetchall()
    slugs: dict[int, str] = dict.fromkeys(records, own)
    if not own:
        jobs = RatedJob.objects.filter(record_id__in=records).order_by("record_id", "tenant_id")
        slugs = dict(jobs.values_list("record_id", "tenant__slug"))
    return {
        record: Run(cluster, account, user, job, name, model, slugs.get(record, ""))
        for record, cluster, account, user, job, name, model in rows
    }


def _pods(keys: Sequence[Key], *, own: bool) -> dict[Key, Names | None]:
    slugs = _tenants(key[0] for key in keys)
    with connection.cursor() as cursor:
        records = {key[1] for key in keys if key[1] is not None}
        cursor.execute(sql.RUNS_OWN if own else sql.RUNS, {"records": list(records)})
        runs = {record: told for record, *told in cursor.fetchall()}
    found: dict[Key, Names | None] = {}
    for key in keys:
        if key[1] is None:
            found[key] = None
            continue
        cluster, account, user, job, name, model = runs[key[1]]
        texts = (slugs.get(key[0], ""), cluster, account, user, job, name, model)
        found[key] = dict(zip(LABELS[By.POD], texts, strict=True))
    return found


def _tenants(ids: Any) -> dict[int, str]:
    wanted = {pk for pk in ids if pk is not None}
    return dict(Tenant.objects.filter(pk__in=wanted).values_list("pk", "slug"))
