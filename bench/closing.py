"""Closing a month of a million jobs of a thousand tenants."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from django.db import connection, transaction
from django.db.models import Sum

from bench import instance, jobs, limits, world
from bench.result import DifferentWorkError, Goal, Result, Side, in_turn
from bench.scale import Scale
from billing.invoicing import month_close
from billing.models import Invoice
from billing.rating import period_jobs
from portal.core.tenants.models import Tenant

RUN, READY = "bench_run", "bench_ready"
DAYS = 30  # all of it begins in January


def build(
    scale: Scale,
    *,
    name: str = READY,
    count: int = 0,
    borders: Sequence[datetime] = world.BORDERS,
    days: int = DAYS,
) -> None:
    """The ledger, rated by the limit's SQL into our tables."""
    ledger(scale, name=name, count=count, borders=borders, days=days)
    rate(borders)


def ledger(
    scale: Scale,
    *,
    name: str,
    count: int = 0,
    borders: Sequence[datetime] = world.BORDERS,
    days: int = DAYS,
) -> None:
    """Tenants, plans and the jobs, a million unless said, not rated yet; the first tenant has a tenth of them."""
    tenants = scale.of(1_000)
    instance.copy(instance.EMPTY, name)
    cluster = world.build(tenants, borders=borders)
    first = int(borders[0].timestamp())
    workload = jobs.jobs(count or scale.of(1_000_000), accounts=tenants, days=days, first=first, largest=10)
    world.load_records(cluster, workload)


def rate(borders: Sequence[datetime] = world.BORDERS) -> None:
    """Rate the ledger in use by the limit's SQL, into our tables."""
    world.resolve_terms()
    with connection.cursor() as cursor:
        for border in borders:
            cursor.execute("SELECT billing_ensure_month(%s)", [border.date()])
    limits.rate(into="billing")
    with connection.cursor() as cursor:
        cursor.execute(SHOW_JOBS)
        cursor.execute(SHOW_DAYS)
        cursor.execute(SHOW_PERIODS, {"kept": period_jobs.KEPT})
        cursor.execute("VACUUM ANALYZE")  # as the database does by itself, sooner or later
        cursor.execute(TABLES)


def close(scale: Scale, postmaster: int) -> Result:
    """January of all tenants: an invoice each, without PDFs. Leaves the last round's database in use."""
    tenants = Tenant.objects.count()
    ours = Side(everybody, partial(instance.copy, READY, RUN), _billed)
    cost, least = in_turn(postmaster, ours, Side(_limit, outcome=_billed_by_limit), rounds=scale.rounds)
    title = "a month: gates, invoices, numbers, audit, proof, outbox"
    return Result("close", title, tenants, "tenants", cost, least, Goal(at_most="10"))


def everybody(year: int = 2026, month: int = 1) -> None:
    """Close that month for all."""
    tenants = Tenant.objects.order_by("pk")
    for closed in month_close.close_month(tenants=tenants, year=year, month=month, moment=world.MOMENT):
        if closed.outcome is not month_close.Outcome.ISSUED:
            raise DifferentWorkError(f"{closed.tenant}: {closed.outcome} {closed.reason}")


def _limit() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(CLOSE, {"month": world.BORDERS[0].date(), "moment": world.MOMENT})


def _billed() -> object:
    return Invoice.objects.count(), Invoice.objects.aggregate(sum=Sum("total"))["sum"]


def _billed_by_limit() -> object:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*), sum(total) FROM bench_invoice")
        return cursor.fetchone()


SHOW_JOBS = """
INSERT INTO billing_ratedjob
    (tenant_id, record_id, project_id, cluster, account, job_id, name, "user", queue, qos, gpu_model, mig_profile,
     gpus, share_num, share_den, cpu_milli, memory_mib, nodes, state, submitted, started, ended, seen_until, shown_at,
     gpu_units, cost_price_id, cost_units, unpriced)
SELECT o.tenant_id, u.id, o.project_id, 'gpu1', a.name, u.job_id, u.name, u."user", u.queue, u.qos, u.gpu_model, '',
       u.gpus, 1, 1, u.cpu_milli, u.memory_mib, u.nodes, u.state, u.submitted, u.started, u.ended, NULL, u.started,
       u.gpus * (u.ended - u.started), c.price_id, u.gpus * (u.ended - u.started) / 3600::numeric, false
FROM clusters_usagerecord u JOIN clusters_account a ON a.id = u.account_id
JOIN tenants_ownership o ON o.account_id = a.id
LEFT JOIN (SELECT DISTINCT account_id, gpu_model, price_id FROM bench_terms WHERE price_id IS NOT NULL) c
  ON c.account_id = u.account_id AND c.gpu_model = u.gpu_model
"""

SHOW_DAYS = """
CREATE TEMP TABLE bench_daily AS
SELECT tenant_id, '1970-01-01'::date + d::int AS day, project_id, resource, price_id, share_den, label,
       series_digest(project_id, resource, price_id, share_den, label_digest(label)) AS digest,
       sum(units / (service_to - service_from)
           * (least(service_to, (d + 1) * 86400) - greatest(service_from, d * 86400))) AS units
FROM (
    SELECT r.*, usage_label(j."user", j.account, j.cluster, j.gpu_model, j.queue, j.qos, j.state) AS label
    FROM billing_ratedusage r JOIN billing_ratedjob j USING (record_id, tenant_id)
    WHERE r.resource = 'gpu' OR r.verdict = 'charged'
) rated CROSS JOIN LATERAL generate_series(service_from / 86400, (service_to - 1) / 86400) AS d
GROUP BY tenant_id, day, project_id, resource, price_id, share_den, label;
INSERT INTO billing_usageseries (tenant_id, project_id, resource, price_id, share_den, "user", account, cluster,
    gpu_model, queue, qos, state, digest)
SELECT DISTINCT tenant_id, project_id, resource, price_id, share_den, label[1], label[2], label[3], label[4], label[5],
       label[6], label[7], digest
FROM bench_daily;
INSERT INTO billing_dailyusage (tenant_id, day, series_id, units)
SELECT d.tenant_id, d.day, s.id, d.units FROM bench_daily d JOIN billing_usageseries s USING (tenant_id, digest);
INSERT INTO billing_daytotal (tenant_id, day, project_id, gpu_model, resource, price_id, share_den, units)
SELECT tenant_id, day, project_id, label[4], resource, price_id, share_den, sum(units) FROM bench_daily
GROUP BY 1, 2, 3, 4, 5, 6, 7;
DROP TABLE bench_daily
"""

SHOW_PERIODS = """
CREATE TEMP TABLE bench_ran AS
SELECT j.tenant_id, b.id AS period_id, coalesce(j.cost_price_id, 0) AS price_id, j.record_id, j.cost_units, j.gpu_units,
       b.start <= to_timestamp(j.started) AS began, row_number() OVER (
           PARTITION BY b.id, j.cost_price_id ORDER BY j.cost_units DESC, j.gpu_units DESC, j.record_id DESC) AS place
FROM billing_ratedjob j JOIN billing_billingperiod b ON b.tenant_id = j.tenant_id
 AND b.start < to_timestamp(j.ended) AND b."end" > to_timestamp(j.started);
INSERT INTO billing_periodtopjob (tenant_id, period_id, record_id, price_id)
SELECT tenant_id, period_id, record_id, price_id FROM bench_ran WHERE place <= %(kept)s;
INSERT INTO billing_periodjobs (tenant_id, period_id, price_id, started, floor_cost, floor_units, floor_id)
SELECT r.tenant_id, r.period_id, r.price_id, count(*) FILTER (WHERE r.began),
       max(r.cost_units) FILTER (WHERE r.place = %(kept)s + 1),
       max(r.gpu_units) FILTER (WHERE r.place = %(kept)s + 1), max(r.record_id) FILTER (WHERE r.place = %(kept)s + 1)
FROM bench_ran r GROUP BY r.tenant_id, r.period_id, r.price_id;
DROP TABLE bench_ran
"""

TABLES = """
CREATE TABLE bench_invoice AS SELECT * FROM billing_invoice WITH NO DATA;
CREATE SEQUENCE bench_invoice_id;
ALTER TABLE bench_invoice ALTER id SET DEFAULT nextval('bench_invoice_id');
CREATE UNIQUE INDEX ON bench_invoice (number);
CREATE UNIQUE INDEX ON bench_invoice (tenant_id, period_id);
CREATE TABLE bench_line AS SELECT * FROM billing_invoiceline WITH NO DATA;
CREATE UNIQUE INDEX ON bench_line (invoice_id, position);
CREATE TABLE bench_event (invoice_id bigint, happened_at timestamptz, row jsonb);
CREATE TABLE bench_outbox (id bigserial PRIMARY KEY, task text, kwargs jsonb);
"""

# From rated usage, since without our totals that is where the sums are.
CLOSE = """
WITH line AS MATERIALIZED (
    SELECT r.tenant_id, r.period_id, r.project_id, r.price_id, r.share_den, sum(r.units * r.share_num) AS units,
           max(r.id) AS through, c.unit_price, c.meter, c.selector,
           round(sum(r.units * r.share_num) * c.unit_price * 100 / (r.share_den * 3600::numeric))::bigint AS amount,
           row_number() OVER (PARTITION BY r.tenant_id ORDER BY r.project_id, r.price_id) AS position
    FROM billing_ratedusage r JOIN billing_price c ON c.id = r.price_id
    WHERE r.service_month = %(month)s AND r.verdict = 'charged'
    GROUP BY r.tenant_id, r.period_id, r.project_id, r.price_id, r.share_den, c.id
), invoice AS (
    INSERT INTO bench_invoice (tenant_id, period_id, state, number, currency, period_start, period_end, timezone,
        issued_on, due_on, seller, buyer, terms, subtotal, tax_name, tax_rate, tax, total, rated_through)
    SELECT t.id, p.id, 'issued', to_char(p.start, '"INV-"YYYY-MM-') || row_number() OVER (ORDER BY t.id), 'USD',
           p.start, p."end", 'UTC', %(moment)s, %(moment)s, '{}', jsonb_build_object('name', t.name), '{}',
           f.amount, 'VAT', 0, 0, f.amount, f.through
    FROM (SELECT tenant_id, period_id, sum(amount) AS amount, max(through) AS through FROM line GROUP BY 1, 2) f
    JOIN tenants_tenant t ON t.id = f.tenant_id JOIN billing_billingperiod p ON p.id = f.period_id
    RETURNING *
), event AS (
    INSERT INTO bench_event SELECT i.id, %(moment)s, to_jsonb(i) FROM invoice i
), message AS (
    INSERT INTO bench_outbox (task, kwargs) SELECT 'render', jsonb_build_object('invoice_id', i.id) FROM invoice i
)
INSERT INTO bench_line (id, invoice_id, tenant_id, position, service_period_id, project_id, project, meter, price_id,
    description, seconds_num, seconds_den, unit, unit_price, amount, correction)
SELECT i.id * 1000 + l.position, i.id, l.tenant_id, l.position, l.period_id, l.project_id, 'default', l.meter,
       l.price_id, l.selector, l.units, l.share_den, 'GPU-hour', l.unit_price, l.amount, false
FROM line l JOIN invoice i ON i.tenant_id = l.tenant_id
"""
