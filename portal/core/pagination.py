"""Lists in pages: a page ends with a cursor that says where it ended, so that rows which come and go move no other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.core.exceptions import ValidationError
from django.db.models import Model, Q, QuerySet

M = TypeVar("M", bound=Model)
BETWEEN = "_"  # the values of a cursor


@dataclass(frozen=True, slots=True)
class Page(Generic[M]):
    """Some rows of a list."""

    rows: list[M]
    next: str  # the cursor of the page that follows, "" for none
    is_first: bool  # it begins at the top


def page(
    rows: QuerySet[M], *order: str, after: str, size: int, fetch: Callable[[QuerySet[M]], list[M]] = list
) -> Page[M]:
    """The rows behind the cursor `after`, ordered as by `order_by`. One query.

    The fields are the model's own, none is null, and together they are unique. A text that is no cursor begins at the
    top, as "" does.
    """
    values = _values(rows.model, order, after)
    if values is not None:
        rows = rows.filter(behind(order, values))
    page_rows = fetch(rows.order_by(*order)[: size + 1])
    more = _cursor(page_rows[size - 1], order) if len(page_rows) > size else ""
    return Page(page_rows[:size], more, is_first=values is None)


def _cursor(row: Model, order: Sequence[str]) -> str:
    fields = (row._meta.get_field(name.lstrip("-")) for name in order)
    return BETWEEN.join(field.value_to_string(row) for field in fields)  # type: ignore[union-attr]  # no relation


def behind(order: Sequence[str], values: Sequence[Any]) -> Q:
    """Rows that come after the one with these values of the fields that a list is ordered by.

    The first field alone is said as well: by it an index finds the place.
    """
    rows, same = Q(), Q()
    for name, value in zip(order, values, strict=True):
        field, beyond = name.lstrip("-"), "lt" if name.startswith("-") else "gt"
        rows |= same & Q(**{f"{field}__{beyond}": value})
        same &= Q(**{field: value})
    first = f"{order[0].lstrip('-')}__{'lte' if order[0].startswith('-') else 'gte'}"
    return rows & Q(**{first: values[0]})


def _values(model: type[Model], order: Sequence[str], cursor: str) -> list[Any] | None:
    """None for a text that is no cursor."""
    texts = cursor.replace("\0", "").split(BETWEEN, len(order) - 1)
    fields: list[Any] = [model._meta.get_field(name.lstrip("-")) for name in order]
    try:
        return [field.clean(text, None) for field, text in zip(fields, texts, strict=True)]
    except (ValidationError, ValueError):
        return None
