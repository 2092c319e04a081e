"""One run that never was, rated as usage is: by the statements of rating, but read at once.

A batch goes through working tables, which pay for themselves from some hundred records on. For one run, making them
takes longer than rating it, and leaves dead rows in the catalogue. So the statements that fill them are the parts of
one here. Only where a price depends on the hour or on use, rating has more of them, and the tables are made.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from django.db import connection, transaction

from billing.catalog.allowances import Cut
from billing.rating import engine
from clusters import usage
from clusters.connectors.base import UsageFact
from portal.core.tenants.scope import own_work_tables
from portal.prepared import prepared_cursor

# What prices select by makes no difference where there is one shape: it is compared with whatever they name.
_SELECTED = {
    **dict.fromkeys(("by_cluster", "by_queue", "by_qos", "by_priority_class", "by_gpu_model"), "true"),
    **dict.fromkeys(("by_mig_profile", "by_state", "by_dimension", "of_one_tenant"), "true"),
    **dict.fromkeys(("by_use", "in_hours"), "false"),
}

_PARTS = """
WITH usage_input AS MATERIALIZED ({run}),
     rate_span AS MATERIALIZED ({spans}),
     rate_open (calendar_id, open_id, open) AS (SELECT 0, 0, ARRAY[0::bigint] WHERE false),
     rate_offer AS MATERIALIZED ({offers}),
     rate_cut AS MATERIALIZED ({cuts})
"""

# One row at least where there is the account: whether the tables have to be made, and then no cut.
_CUTS = """
SELECT t.needs_tables, c.* FROM (
    SELECT EXISTS (
        SELECT FROM billing_price p JOIN rate_span s ON s.version_id = p.version_id
        WHERE p.hours <> '{}' OR p.uses <> '{}'
    ) AS needs_tables FROM usage_input
) t LEFT JOIN LATERAL (
    SELECT o.tenant_id, o.payer_id, o.period_id, p.name, o.resource, o.verdict, o.price_id,
           CASE WHEN o.verdict = 'unpriced' THEN u.gpu_model ELSE '' END AS gpu_model, o.service_month,
           w.record_id, w.service_from, w.service_to, w.units, w.share_num, w.share_den
    FROM rate_cut w JOIN rate_offer o USING (offer_id) JOIN usage_input u USING (record_id)
    JOIN tenants_project p ON p.id = o.project_id
    WHERE o.verdict <> 'waived'
) c ON %s ORDER BY c.service_from, c.resource, c.price_id
"""


def cut_run(account_id: int, run: UsageFact) -> Sequence[Cut] | None:
    """What the run would be rated as, but for what its plan does not charge; None without the account.

    Billing periods that it falls into have to be there. One query, and where the tables have to be made those of
    rating a batch besides.
    """
    with prepared_cursor() as cursor:
        cursor.execute(_statement(), usage.supposed_values(account_id, run))
        rows = cursor.fetchall()
    if not rows:
        return None
    return cut_run_in_tables(account_id, run) if rows[0][0] else _read(rows)


@transaction.atomic
def cut_run_in_tables(account_id: int, run: UsageFact) -> list[Cut]:
    """As `cut_run` by the tables of a batch, undone at once: the next on the connection may be of another role."""
    own_work_tables()
    usage.load_supposed(account_id, run)
    engine.suppose()
    with connection.cursor() as cursor:
        cursor.execute(_CUTS % "true")
        rows = cursor.fetchall()
    transaction.set_rollback(True)
    return _read(rows)


def _read(rows: Sequence[tuple[Any, ...]]) -> list[Cut]:
    return [Cut(*row) for _, *row in rows if row[0] is not None]


@cache
def _statement() -> str:
    parts = {
        "run": usage.sql.SUPPOSE,
        "spans": engine.price_spans.SPANS,
        "offers": engine.price_spans.OFFERS,
        "cuts": engine.sql.CUTS,
    }
    selects = {name: _select(text) for name, text in parts.items()}
    for name in ("offers", "cuts"):
        selects[name] %= _SELECTED
    return _PARTS.format(**selects) + _CUTS % "NOT t.needs_tables"


def _select(statement: str) -> str:
    """What a table is filled with."""
    return re.sub(r"^INSERT INTO \w+(?: \([^)]*\))?\s", "", statement)
