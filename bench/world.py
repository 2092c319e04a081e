"""The tenants, plans and prices that jobs are billed by, and their terms resolved into one table."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from typing import Any

from django.db import connection

from bench import jobs
from billing.models import BillingPeriod, Plan, PlanVersion, Price, Seller, Subscription
from clusters.meters import declare_meter
from clusters.models import Account, Cluster
from portal.core.tenants.models import Ownership, Project, Tenant

LONG_AGO = date(2020, 1, 1)
NEW_PRICES = date(2026, 1, 20)
NEW_OWNER = datetime(2026, 1, 16, 12, tzinfo=UTC)
NEW_PLAN = datetime(2026, 2, 1, tzinfo=UTC)
BORDERS = [datetime(2026, month, 1, tzinfo=UTC) for month in range(1, 8)]
MOMENT = datetime(2026, 9, 1, tzinfo=UTC)  # when all of it is looked at


def build(
    accounts: int,
    *,
    charges: Sequence[str] = ("gpu",),
    changes: bool = False,
    borders: Sequence[datetime] = BORDERS,
) -> Cluster:
    """A cluster whose accounts have a tenant each, with periods between the borders.

    With `changes`, prices change in January, every fourth account changes hands in the middle of a
    day, and every fourth tenant changes its plan in February.
    """
    Seller.objects.get_or_create(name="Northern Compute GmbH", address="Hafenstraße 1\n20457 Hamburg")
    cluster = Cluster.objects.create(name="gpu1", complete_through=MOMENT)
    names = [jobs.account_name(n) for n in range(accounts)]
    Account.objects.bulk_create([Account(cluster=cluster, name=name) for name in names])
    Tenant.objects.bulk_create([Tenant(slug=name, name=name.title()) for name in names])
    labs = list(Tenant.objects.order_by("pk"))
    Project.objects.bulk_create([Project(tenant=tenant, name="default") for tenant in labs])
    BillingPeriod.objects.bulk_create(
        [
            BillingPeriod(tenant=tenant, start=start, end=end, timezone="UTC")
            for tenant in labs
            for start, end in itertools.pairwise(borders)
        ]
    )
    standard = _plan("standard", charges, changes=changes, cents=200)
    premium = _plan("premium", charges, changes=changes, cents=300)
    _subscribe(labs, standard, premium, changes=changes)
    _own(list(Account.objects.order_by("pk")), labs, changes=changes)
    return cluster


def _plan(name: str, charges: Sequence[str], *, changes: bool, cents: int) -> Plan:
    plan = Plan.objects.create(name=name, currency="USD")
    version = PlanVersion.objects.create(plan=plan, effective_from=LONG_AGO, charges=list(charges))
    meters = {"gpu": "gpu-hour", "cpu": "cpu-core-hour", "memory": "memory-gib-hour"}
    spans = [(LONG_AGO, NEW_PRICES), (NEW_PRICES, None)] if changes else [(LONG_AGO, None)]
    for resource in charges:
        for model in jobs.MODELS if resource == "gpu" else ("",):
            for turn, (since, until) in enumerate(spans):
                Price.objects.create(
                    version=version,
                    meter=meters[resource],
                    resource=resource,
                    gpu_models=[model] if model else [],
                    specificity=1 if model else 0,
                    selector=f"gpu_model={model}" if model else "",
                    unit_price=f"{(cents + len(model) + turn * 10) // 100}.{(cents + turn * 10) % 100:02d}",
                    valid_from=since,
                    valid_until=until,
                )
    return plan


def price_tokens(meter: str, dimensions: Sequence[str] = ()) -> None:
    """Have all plans charge them."""
    title, unit = "LLM tokens", "million tokens"
    declare_meter(
        name=meter, title=title, unit=unit, counted="tokens", per_unit=1_000_000, dimensions=dimensions
    )
    for version in PlanVersion.objects.all():
        version.charges = [*version.charges, meter]
        version.save()
        Price.objects.create(
            version=version,
            meter=meter,
            resource=meter,
            unit_price="0.60",
            valid_from=LONG_AGO,
            unit_code="C62",
            title=title,
            unit=unit,
        )


def _subscribe(tenants: list[Tenant], standard: Plan, premium: Plan, *, changes: bool) -> None:
    since = datetime(LONG_AGO.year, 1, 1, tzinfo=UTC)
    rows = []
    for place, tenant in enumerate(tenants):
        changed = changes and place % 4 == 1
        rows.append(
            Subscription(tenant=tenant, plan=standard, since=since, until=NEW_PLAN if changed else None)
        )
        if changed:
            rows.append(Subscription(tenant=tenant, plan=premium, since=NEW_PLAN))
    Subscription.objects.bulk_create(rows)


def _own(accounts: list[Account], tenants: list[Tenant], *, changes: bool) -> None:
    projects = dict(Project.objects.values_list("tenant", "pk"))
    rows = []
    for place, (account, tenant) in enumerate(zip(accounts, tenants, strict=True)):
        changed = changes and place % 4 == 2
        rows.append(_ownership(account, tenant, projects, until=NEW_OWNER if changed else None))
        if changed:
            heir = tenants[(place + 1) % len(tenants)]
            rows.append(_ownership(account, heir, projects, since=NEW_OWNER))
    Ownership.objects.bulk_create(rows)


def _ownership(account: Account, tenant: Tenant, projects: dict[int, int], **span: Any) -> Ownership:
    return Ownership(account=account, tenant=tenant, project_id=projects[tenant.pk], **span)


RESOLVE = """
CREATE TABLE bench_terms AS
SELECT 1 AS sign, 1 AS generation, o.account_id,
       m.gpu_model, r.resource, o.tenant_id, o.project_id, p.id AS period_id, v.id AS version_id,
       c.id AS price_id, coalesce(c.unit_price, 0) AS unit_price,
       CASE WHEN c.id IS NULL THEN 'waived' ELSE 'charged' END AS verdict, r.den AS share_den,
       extract(epoch FROM s.since)::bigint AS since, extract(epoch FROM s.until)::bigint AS until,
       date_trunc('month', p.start AT TIME ZONE 'UTC')::date AS service_month
FROM tenants_ownership o
JOIN billing_billingperiod p ON p.tenant_id = o.tenant_id
JOIN billing_subscription b ON b.tenant_id = o.tenant_id
JOIN billing_planversion v ON v.plan_id = b.plan_id
CROSS JOIN (VALUES ('gpu', 1), ('cpu', 1000), ('memory', 1024)) AS r (resource, den)
CROSS JOIN unnest(%s::text[]) AS m (gpu_model)
LEFT JOIN billing_price c ON c.version_id = v.id AND c.resource = r.resource
    AND (c.gpu_models = '{}' OR m.gpu_model = ANY (c.gpu_models))
CROSS JOIN LATERAL (
    SELECT greatest(o.since, p.start, b.since, c.valid_from::timestamp AT TIME ZONE 'UTC') AS since,
           least(o.until, p."end", b.until, c.valid_until::timestamp AT TIME ZONE 'UTC') AS until
) s
WHERE s.since < s.until AND (c.id IS NOT NULL OR r.resource = 'gpu')
"""


def resolve_terms() -> None:
    """Make `bench_terms`: who pays what for each account and model, when. What a limit is given for nothing."""
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS bench_terms")
        cursor.execute(RESOLVE, [list(jobs.MODELS)])
        cursor.execute("CREATE INDEX ON bench_terms (account_id, gpu_model)")
        cursor.execute("ANALYZE bench_terms")


def record_rows(cluster: Cluster, workload: Iterable[jobs.Job]) -> Iterator[tuple[Any, ...]]:
    """The jobs as rows of the ledger, in the order of `RECORD_COLUMNS`. One query, at once."""
    accounts = list(Account.objects.order_by("pk").values_list("pk", flat=True))
    return (_record_row(cluster.pk, accounts[job.account], job) for job in workload)


def _record_row(cluster: int, account: int, job: jobs.Job) -> tuple[Any, ...]:
    return (
        cluster, account, job.key, str(job.number), f"train-{job.number % 97}", job.user, job.queue, "normal", "",
        job.gpus, job.model, "", 1, 1, job.cpus * 1000, job.memory * 1024, 1, f"node{job.number % 200:03d}", "",
        86_400, job.submitted, job.submitted, job.started, job.ended, 0, job.state, "0:0", MOMENT, 1,
    )  # fmt: skip


RECORD_COLUMNS = (
    'cluster_id, account_id, source_key, job_id, name, "user", queue, qos, priority_class, gpus, gpu_model, '
    "mig_profile, share_num, share_den, cpu_milli, memory_mib, nodes, node_list, requested, time_limit, submitted, "
    "eligible, started, ended, suspended, state, exit_code, last_seen, revision"
)


NEW_ID = "usage_key_month(source_key)::bigint << 40 | nextval('clusters_usagerecord_id_seq')"


def load_records(cluster: Cluster, workload: Iterable[jobs.Job]) -> None:
    """Put the jobs into the ledger's table, unrated."""
    rows = record_rows(cluster, workload)
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE TEMP TABLE bench_loaded AS SELECT {RECORD_COLUMNS} FROM clusters_usagerecord LIMIT 0"
        )
        with cursor.copy(f"COPY bench_loaded ({RECORD_COLUMNS}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
        cursor.execute(
            "SELECT clusters_ensure_records(m), billing_ensure_jobs(m)"
            " FROM (SELECT DISTINCT usage_key_month(source_key) AS m FROM bench_loaded ORDER BY m) month"
        )
        cursor.execute(
            f"INSERT INTO clusters_usagerecord (id, {RECORD_COLUMNS})"
            f" SELECT {NEW_ID}, {RECORD_COLUMNS} FROM bench_loaded"
        )
        cursor.execute("DROP TABLE bench_loaded")


def correct_terms() -> None:
    """Change `bench_terms` into what takes back the terms that it has, and adds those that hold now."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE bench_terms RENAME TO bench_old")
        resolve_terms()
        cursor.execute(
            "UPDATE bench_terms SET generation = 2; UPDATE bench_old SET sign = -1, generation = 2"
        )
        cursor.execute(
            "INSERT INTO bench_terms SELECT * FROM bench_old; DROP TABLE bench_old; ANALYZE bench_terms"
        )
