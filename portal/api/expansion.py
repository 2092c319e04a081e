"""What an object can hold besides its fields: `?expand=lines,credit_notes.lines`, from a fixed list, two levels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rest_framework.serializers import Serializer

from portal.api import parameters
from portal.api.parameters import Parameter
from portal.api.problems import bad_parameter

NAME = "expand"
LARGEST_PAGE = 50  # objects of a list that are expanded
MOST = 5_000  # objects that one answer holds besides


@dataclass(frozen=True)
class Expansion:
    """Objects that belong to others: read for all of them at once, in a fixed number of queries."""

    serializer: type[Serializer[Any]]
    load: Callable[[Any, Sequence[Any]], Mapping[Any, Sequence[Any]]]
    """Of the endpoint and the objects, what belongs to each, by its primary key; at most MOST + 1 of all."""
    inner: Mapping[str, Expansion] = field(default_factory=dict)


def parameter(expansions: Mapping[str, Expansion]) -> Parameter:
    """`expand`, as an endpoint with these declares it."""
    paths = list(_paths(expansions))
    description = "What each object holds besides. Of a list, at most 50 objects are read then."
    return parameters.choices(NAME, paths, description, most=len(paths))


def expand(
    view: Any,
    rows: Sequence[Any],
    data: Sequence[dict[str, Any]],
    *,
    paths: Sequence[str],
    of: Mapping[str, Expansion],
) -> None:
    """Put what the paths name into `data`, which are the representations of `rows`. Raises ProblemError 400."""
    wanted: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        name, _, rest = path.partition(".")
        wanted[name] += [rest] if rest else []
    for name, inner_paths in wanted.items():
        expansion = of[name]
        related = expansion.load(view, rows)
        flat = [one for row in rows for one in related.get(row.pk, ())]
        if len(flat) > MOST:
            raise bad_parameter(
                NAME,
                f"The answer would hold more than {MOST} of {name}: ask for fewer objects, or one by one.",
            )
        representations = [expansion.serializer(one).data for one in flat]
        expand(view, flat, representations, paths=inner_paths, of=expansion.inner)
        remaining = iter(representations)
        for row, datum in zip(rows, data, strict=True):
            datum[name] = [next(remaining) for _ in related.get(row.pk, ())]


def by_owner(rows: Iterable[Any], owners: Sequence[Any], attribute: str) -> Mapping[Any, Sequence[Any]]:
    """The rows by what their `attribute` refers to, which each gets as it is, without a query."""
    owner_of = {owner.pk: owner for owner in owners}
    grouped: dict[Any, list[Any]] = defaultdict(list)
    for row in rows:
        owner = owner_of[getattr(row, f"{attribute}_id")]
        setattr(row, attribute, owner)
        grouped[owner.pk].append(row)
    return grouped


def _paths(expansions: Mapping[str, Expansion], before: str = "") -> Iterator[str]:
    for name, expansion in expansions.items():
        yield before + name
        yield from _paths(expansion.inner, f"{before}{name}.")
