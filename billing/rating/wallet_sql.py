"""The statements by which `rating` keeps what is charged to wallets: per hour, project and user."""

from __future__ import annotations

from billing.rating.write_usage_sql import HOURS, pieces_by_hour

# Plans that settle by wallet are few, and most sites have none: then rating does nothing of this.
CHARGED = """
SELECT EXISTS (SELECT 1 FROM billing_plan p JOIN billing_planversion v ON v.plan_id = p.id
               WHERE p.settles = 'wallet' AND v.id IN (SELECT version_id FROM rate_offer))
"""

_OFFERS = """(
    SELECT f.*, p.currency AS unit FROM rate_offer f JOIN billing_price c ON c.id = f.price_id
    JOIN billing_planversion v ON v.id = c.version_id JOIN billing_plan p ON p.id = v.plan_id
    WHERE p.settles = 'wallet' AND f.verdict = 'charged')"""

# Any change of a day makes it newer than what was booked, whichever of its sums it is in.
_TOTAL = f"""
INSERT INTO billing_wallettotal AS t
    (tenant_id, unit, day, hour, project_id, "user", share_den, amount, last_rated_id)
WITH {pieces_by_hour('"user"', offers=_OFFERS)}
SELECT o.tenant_id, o.unit, p.day, p.hour, o.project_id, p."user", p.share_den, sum(p.units * o.unit_price),
       (SELECT max(id) FROM rate_change)
FROM (
    SELECT offer_id, day, hour, "user", share_den, sum(units * share_num) AS units FROM piece GROUP BY 1, 2, 3, 4, 5
) p JOIN {_OFFERS} o USING (offer_id)
GROUP BY 1, 2, 3, 4, 5, 6, 7 ORDER BY 1, 2, 3, 4, 5, 6, 7
ON CONFLICT ON CONSTRAINT wallet_total_is_kept_once DO UPDATE
SET amount = t.amount + excluded.amount, last_rated_id = excluded.last_rated_id
"""

_DUE = f"""
INSERT INTO billing_walletbooking (tenant_id, rated_through, due)
SELECT DISTINCT o.tenant_id, 0, true FROM rate_change c JOIN {_OFFERS} o USING (offer_id) ORDER BY 1
ON CONFLICT (tenant_id) DO UPDATE SET due = true
"""

TOTALS = (HOURS, _TOTAL, _DUE)
"""After `rated_sql.RATED`, whose days they use."""
