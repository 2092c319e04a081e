"""Lists in pages: a page ends with a cursor that says where it ended, so that rows which come and go move no other."""

from __future__ import annotations

from collections.abc import Sequence
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


def page(rows: QuerySet[M], *order: str, after: str, size: int) -> Page[M]:
    """The rows behind the cursor `after`, ordered as by `order_by`. One query.

    The fields are the model's own, none is null, and together they are unique. A text that is no cursor begins at the
    top, as "" does.
    """
    behind = _behind(rows.model, order, after)
    page_rows = list(rows.filter(behind).order_by(*order)[: size + 1])
    more = _cursor(page_rows[size - 1], order) if len(page_rows) > size else ""
    return Page(page_rows[:size], more, is_first=not behind)


def _cursor(row: Model, order: Sequence[str]) -> str:
    fields = (row._meta.get_field(name.lstrip("-")) for name in order)
    return BETWEEN.join(field.value_to_string(row) for field in fields)  # type: ignore[union-attr]  # no relation


def _behind(model: type[Model], order: Sequence[str], cursor: str) -> Q:
    """The first field alone is said as well: by it an index finds the place."""
    texts = cursor.replace("\0", "").split(BETWEEN, len(order) - 1)
    fields: list[Any] = [model._meta.get_field(name.lstrip("-")) for name in order]
    try:
        values = [field.clean(text, None) for field, text in zip(fields, texts, strict=True)]
    except (ValidationError, ValueError):
        return Q()
    behind, same = Q(), Q()
    for name, field, value in zip(order, fields, values, strict=True):
        beyond = "lt" if name.startswith("-") else "gt"
        behind |= same & Q(**{f"{field.name}__{beyond}": value})
        same &= Q(**{field.name: value})
    first = "lte" if order[0].startswith("-") else "gte"
    return behind & Q(**{f"{fields[0].name}__{first}": values[0]})
