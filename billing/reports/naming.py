"""What the groups of a report are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import connection

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
