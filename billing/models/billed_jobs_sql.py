"""The triggers by which a job that an issued document covers is kept as it was, before it changes or goes.

Set-based, over the rows of a whole statement: rating changes ten thousand jobs at once, nearly all of which no document
covers yet, or which are kept already.
"""

from __future__ import annotations

from collections.abc import Sequence

# Of each tenant how far documents reach that may state its use: its own, and those of whoever pays for it. What they
# cover began before the last of their periods ended.
_KEEP = """
INSERT INTO billing_billedjob (tenant_id, record_id, through, {columns})
SELECT o.tenant_id, o.record_id, d.through, {old}
FROM old_jobs o JOIN (
    SELECT t.tenant_id, max(i.rated_through) AS through, extract(epoch FROM max(i.period_end))::bigint AS until
    FROM (SELECT DISTINCT tenant_id FROM old_jobs) t
    CROSS JOIN LATERAL (
        SELECT t.tenant_id AS id UNION SELECT y.payer_id FROM billing_payer y WHERE y.tenant_id = t.tenant_id
    ) b JOIN billing_invoice i ON i.tenant_id = b.id AND i.state IN ('issued', 'void')
    GROUP BY t.tenant_id
) d ON d.tenant_id = o.tenant_id AND o.started < d.until
{changed}
ON CONFLICT DO NOTHING;
RETURN NULL;
"""

_CHANGED = """JOIN new_jobs n ON n.record_id = o.record_id AND n.tenant_id = o.tenant_id
    AND ({new}) IS DISTINCT FROM ({old})"""


def keep_changed(described: Sequence[str]) -> str:
    """After an update: the old description, where it is another one now."""
    new, old = columns(described, "n."), columns(described, "o.")
    return _KEEP.format(columns=columns(described), old=old, changed=_CHANGED.format(new=new, old=old))


def keep_gone(described: Sequence[str]) -> str:
    """After a deletion: a job that is another tenant's now."""
    return _KEEP.format(columns=columns(described), old=columns(described, "o."), changed="")


def columns(names: Sequence[str], alias: str = "") -> str:
    return ", ".join(f'{alias}"{name}"' for name in names)
