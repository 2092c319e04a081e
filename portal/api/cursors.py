"""Lists that go on where they ended: neither skipped nor repeated, whatever comes and goes meanwhile.

A cursor is signed and says of which list, filters and owner it is, when it was made, and the sort values of the last
row. Rows are read by these values, so page 10,000 costs what page 1 costs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, Generic, TypeVar
from uuid import UUID

from django.core import signing
from django.db.models import Model, QuerySet

from portal.api.problems import bad_parameter
from portal.core.pagination import behind

M = TypeVar("M", bound=Model)
SALT = "portal.api.cursors"
LIFETIME = 24 * 3600  # seconds
COUNTED = 10_000


@dataclass(frozen=True, slots=True)
class Page(Generic[M]):
    """The rows, and the cursor of the next page; None at the end. `count` is "10000+" above that."""

    rows: Sequence[M]
    next: str | None
    count: int | str | None = None


def page(
    rows: QuerySet[M, M],
    *,
    order: Sequence[str],
    query: Mapping[str, Any],
    listing: str,
    owner: str,
) -> Page[M]:
    """One page of `rows` by `order`, whose last field is unique and none of whose fields is null.

    `query` are the parameters of the request: `limit`, `cursor`, `count` and the filters. Raises ProblemError 400 for a
    cursor that is not of this list, these filters and this owner, or is older than a day.
    """
    filters = {name: value for name, value in query.items() if name not in {"cursor", "limit", "count"}}
    of_what = _digest(listing, owner, order, filters)
    ordered = rows.order_by(*order)
    if query.get("cursor"):
        values = _values(query["cursor"], of_what)
        if len(values) != len(order):
            raise _not_ours()
        ordered = ordered.filter(behind(order, values))
    limit = query["limit"]
    rows_read = list(ordered[: limit + 1])
    more = len(rows_read) > limit
    last = rows_read[limit - 1] if more else None
    following = (
        _sign(of_what, [_plain(_attribute(last, name)) for name in order]) if last is not None else None
    )
    count: int | str | None = None
    if query.get("count"):
        number = rows.order_by()[: COUNTED + 1].count()
        count = number if number <= COUNTED else f"{COUNTED}+"
    return Page(rows_read[:limit], following, count)


def _attribute(row: Any, name: str) -> Any:
    for step in name.lstrip("-").split("__"):
        row = getattr(row, step)
    return row


def _plain(value: Any) -> Any:
    """As JSON holds it; the field that it is compared with reads it again."""
    if isinstance(value, date):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal | UUID) else value


def _sign(of_what: str, values: list[Any]) -> str:
    return signing.dumps([of_what, values], salt=SALT, compress=True)


def _values(cursor: str, of_what: str) -> Sequence[Any]:
    try:
        made_for, values = signing.loads(cursor, salt=SALT, max_age=LIFETIME)
    except signing.SignatureExpired:
        raise bad_parameter("cursor", "The cursor is older than 24 hours: begin the list again.") from None
    except (signing.BadSignature, ValueError, TypeError):
        raise _not_ours() from None
    if made_for != of_what:
        raise _not_ours()
    return list(values)


def _not_ours() -> Exception:
    return bad_parameter(
        "cursor", "The cursor is not one of this list with these filters: begin the list again."
    )


def _digest(listing: str, owner: str, order: Sequence[str], filters: Mapping[str, Any]) -> str:
    text = json.dumps([listing, owner, list(order), filters], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
