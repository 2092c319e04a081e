"""The jobs behind a large invoice as CSV, beside COPY of as many columns of the same rows."""

from __future__ import annotations

from functools import partial

from django.db import connection

from bench import world
from bench.meter import resident
from bench.result import Goal, Result, Side, in_turn
from bench.scale import Scale
from billing.models import Invoice
from billing.queries import line_usage
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import stream_in_scope

GROWTH = 20 * 1024  # KiB by which the process may grow meanwhile

PLAIN = """
COPY (SELECT r.service_from, r.service_to, r.units, r.share_num, r.share_den, j.job_id, j.name, j."user", j.cluster,
             j.account, j.queue, j.gpu_model, j.state, r.project_id, r.price_id, r.period_id, j.gpus, j.nodes
      FROM billing_ratedusage r JOIN billing_ratedjob j ON j.tenant_id = r.tenant_id AND j.record_id = r.record_id
      WHERE r.tenant_id = %s AND r.service_month = %s AND r.verdict = 'charged')
TO STDOUT WITH (FORMAT csv, HEADER)
"""


def csv(scale: Scale, postmaster: int) -> Result:
    """Peak memory is the export's promise as much as its speed: nothing of the answer is resident."""
    tenant = Tenant.objects.order_by("pk")[0]
    invoice = Invoice.objects.get(tenant=tenant, period_start=world.BORDERS[0])
    rows: list[int] = []
    ours = Side(lambda: rows.append(_export(tenant, invoice)))
    before = resident()
    cost, least = in_turn(postmaster, ours, Side(partial(_copy, tenant)), rounds=scale.rounds)
    title = "an invoice's jobs as CSV, beside COPY of the rows"
    grown = max(cost.peak - before, 0)
    return Result("csv", title, rows[0], "rows", cost, least, Goal(at_least="0.50"), memory=(grown, GROWTH))


def _export(tenant: Tenant, invoice: Invoice) -> int:
    """Lines of the table behind its header."""
    lines = list(invoice.lines.select_related("service_period", "invoice").order_by("position"))
    pieces = stream_in_scope(tenant, line_usage.as_csv(invoice, lines))
    return sum(piece.count(b"\n") for piece in pieces) - 1


def _copy(tenant: Tenant) -> None:
    with connection.cursor() as cursor, cursor.copy(PLAIN, [tenant.pk, world.BORDERS[0].date()]) as copy:
        for _ in copy:
            pass
