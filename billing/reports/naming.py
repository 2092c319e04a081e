"""What the groups of a report are called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db import connection, transaction

from billing.models import RatedJob
from billing.reports.shapes import LABELS, By
from billing.sealed_months import all_tenants_rows
from billing.sealed_months.rows_sql import JOBS, RECORDS
from clusters import absent_records
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
            project_ids = {key[1] for key in keys if key[1] is not None}
            projects = dict(Project.objects.filter(pk__in=project_ids).values_list("pk", "name"))
            texts = {key: (slugs.get(key[0], ""), projects.get(key[1], "")) for key in keys}
        case By.POD:
            return _pods(keys, own=own)
        case _:
            texts = {key: tuple(str(part) for part in key) for key in keys}
    return {key: dict(zip(LABELS[by], values, strict=True)) for key, values in texts.items()}


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
    runs = load_runs(records, own=bool(own))
    if own:
        return {record: replace(run, slug=own) if run.cluster else run for record, run in runs.items()}
    slugs = _slugs(records)
    if missing := [record for record in records if record not in slugs]:
        with transaction.atomic(), all_tenants_rows.selected_records(missing, JOBS):
            slugs |= _slugs(missing)
    return {record: replace(run, slug=slugs.get(record, "")) for record, run in runs.items()}


def _slugs(records: Sequence[int]) -> dict[int, str]:
    jobs = RatedJob.objects.filter(record_id__in=records).order_by("record_id", "tenant_id")
    return dict(jobs.values_list("record_id", "tenant__slug"))


def load_runs(records: Iterable[int], *, own: bool) -> dict[int, Run]:
    """Runs by record; `own` inside a tenant's scope, where one that is another tenant's now has no names.

    One query; two where a run of the tenant's is not in the tables. Raises RowsInFilesError where it cannot be read.
    """
    nameless = dict.fromkeys(records, Run("", "", "", "", "", ""))
    runs = _load_runs(nameless, own=own)
    if missing := [record for record in nameless if record not in runs]:  # of figures of a snapshot
        if own:
            absent_records.show_records(missing)
            runs |= _load_runs(missing, own=True)
        else:
            with transaction.atomic(), all_tenants_rows.selected_records(missing, RECORDS):
                runs |= _load_runs(missing, own=False)
    return nameless | runs


def _load_runs(records: Iterable[int], *, own: bool) -> dict[int, Run]:
    with connection.cursor() as cursor:
        cursor.execute(sql.RUNS_OWN if own else sql.RUNS, {"records": list(records)})
        return {record: Run(*names) for record, *names in cursor.fetchall()}


def _pods(keys: Sequence[Key], *, own: bool) -> dict[Key, Names | None]:
    slugs = _tenants(key[0] for key in keys)
    runs = load_runs([key[1] for key in keys if key[1] is not None], own=own)
    names: dict[Key, Names | None] = {}
    for key in keys:
        if key[1] is None:
            names[key] = None
            continue
        run = runs[key[1]]
        texts = (
            slugs.get(key[0], ""),
            run.cluster,
            run.account,
            run.user,
            run.job_id,
            run.name,
            run.gpu_model,
        )
        names[key] = dict(zip(LABELS[By.POD], texts, strict=True))
    return names


def _tenants(ids: Any) -> dict[int, str]:
    tenant_ids = {pk for pk in ids if pk is not None}
    return dict(Tenant.objects.filter(pk__in=tenant_ids).values_list("pk", "slug"))
