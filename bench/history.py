"""What the history of changes costs: the same update of many rows with it and without."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from django.db import connection

from bench import instance
from bench.result import Goal, Result, Side, in_turn
from bench.scale import Scale

NAMES = ("history", "historyone")
RUN = "bench_history"
SINGLE = 1_000  # statements of one row each

# Ownerships: four foreign keys and an exclusion constraint, as a hand-over of many accounts meets them.
ROWS = """
INSERT INTO clusters_cluster (id, name, kind, timezone, shares) VALUES (1, 'bench', 'slurm', 'UTC', '{{}}');
INSERT INTO clusters_account (id, cluster_id, name) SELECT n, 1, 'a' || n FROM generate_series(1, {count}) n;
INSERT INTO tenants_tenant
    (id, slug, name, timezone, anchor_day, address, postcode, city, vat_id, email, electronic_address,
     buyer_reference, purchase_order, tax_rate, country, region,
     tax_treatment, tax_category, tax_reason, payment_terms_days, corrections, zero_invoices)
SELECT n, 't' || n, 'Tenant ' || n, 'UTC', 1, '', '', '', '', '', '', '', '', 0, '', '', '', 'standard', '', 14, '', ''
FROM generate_series(1, {count}) n;
INSERT INTO tenants_project (id, tenant_id, name) SELECT n, n, 'main' FROM generate_series(1, {count}) n;
INSERT INTO tenants_ownership (id, account_id, tenant_id, project_id, since)
SELECT n, n, n, n, '2026-01-01' FROM generate_series(1, {count}) n;
"""
EMPTY = """
ALTER TABLE audit_entry DISABLE TRIGGER USER; ALTER TABLE audit_commit DISABLE TRIGGER USER;
TRUNCATE audit_entry, audit_commit;
ALTER TABLE audit_entry ENABLE TRIGGER USER; ALTER TABLE audit_commit ENABLE TRIGGER USER
"""
UPDATE = "UPDATE tenants_ownership SET until = coalesce(until, '2027-01-01') + interval '1 day'"


def works(scale: Scale, postmaster: int, names: set[str]) -> Iterator[Result]:
    if not names & set(NAMES):
        return
    count = scale.of(10_000)
    instance.copy(instance.EMPTY, RUN)
    _run(ROWS.format(count=count))
    _run("VACUUM ANALYZE")
    ours, limit = (partial(_history, on) for on in ("ENABLE", "DISABLE"))
    whole, single = partial(_run, UPDATE), partial(_one_by_one, min(count, SINGLE))
    if "history" in names:
        costs = in_turn(postmaster, Side(whole, ours), Side(whole, limit), rounds=scale.rounds)
        title = "one update of ownerships, beside the same without a history"
        yield Result("history", title, count, "rows", *costs, Goal(at_most="1.2"))
    if "historyone" in names:
        costs = in_turn(postmaster, Side(single, ours), Side(single, limit), rounds=scale.rounds)
        title = "as many updates of one row each, each its own transaction"
        yield Result("historyone", title, min(count, SINGLE), "rows", *costs)
    instance.drop(RUN)


def _history(switch: str) -> None:
    """Every round begins with an empty history and a table without dead rows."""
    _run(f"ALTER TABLE tenants_ownership {switch} TRIGGER audit_update")
    _run(EMPTY)
    _run("VACUUM FULL tenants_ownership")


def _one_by_one(count: int) -> None:
    with connection.cursor() as cursor:
        for key in range(1, count + 1):
            cursor.execute(f"{UPDATE} WHERE id = {key}")


def _run(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)
