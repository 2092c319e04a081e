"""What usage of accounts is rated on, told by a digest: as long as it is the same, rating it again changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import connection

from billing.rating.engine import price_spans
from clusters import temp_tables
from portal.sql_files import Statements

sql = Statements(__file__, "rating_terms.sql")


def digest(account_ids: Sequence[int], *, since: int, until: int) -> str:
    """Of usage of these accounts in [since, until), epoch seconds: who owned it, who pays, on which terms and prices.

    What a price comes to is not in it: rated usage names the price alone.
    """
    values: dict[str, Any] = {"accounts": list(account_ids), "since": since, "until": until}
    with connection.cursor() as cursor:
        temp_tables.prepare(cursor, "USAGE", "OFFER")
        cursor.execute(sql.REACH, values)
        cursor.execute(price_spans.SPANS)
        cursor.execute(sql.DIGEST, values)
        text: str = cursor.fetchone()[0]
        temp_tables.empty(cursor, "USAGE", "OFFER")
    return text
