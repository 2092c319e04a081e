"""Correcting what a price in use comes to, on all of its days: what was used is not rated again for it.

Rated usage and its totals name the price. Documents that were issued keep what they say: the next close bills or
credits the difference, and what wallets were charged is booked anew.
"""

from __future__ import annotations

from typing import Any

from django.db import connection

from billing.models import Price, PriceCorrection
from portal.core.outbox import outbox
from portal.sql_files import Statements

sql = Statements(__file__, "price_corrections.sql")


def keep_amount(price: Price, *, reason: str) -> int:
    """Keep what the price comes to so far, which documents issued until now state; returns the correction's number.

    For a caller that saves the price with another amount and this `corrected_through` in the same transaction. Holds
    until its end the locks of all whose usage the price may have rated.
    """
    values: dict[str, Any] = {"price": price.pk, "version": price.version_id}
    with connection.cursor() as cursor:
        cursor.execute(sql.LOCK_TENANTS, values)
        cursor.execute(sql.NUMBER)
        values["number"] = cursor.fetchone()[0]
        PriceCorrection.objects.create(
            number=values["number"],
            price=price,
            model=price.model,
            scale=price.scale,
            unit_price=price.unit_price,
            reason=reason,
        )
        cursor.execute(sql.TOTALS, values)
        cursor.execute(sql.WALLETS_DUE, values)
        cursor.execute(sql.SEVERAL_PRICES, values)
        tenants = [tenant for (tenant,) in cursor.fetchall()]
    if tenants:
        outbox.add("billing.tasks.rate_tenants", tenant_ids=tenants, order_only=True)
    return int(values["number"])
