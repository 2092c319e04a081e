"""Lists: newest first, in pages."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from portal.dev.stripe_sandbox.calls import Call
from portal.dev.stripe_sandbox.errors import Json, invalid, missing

GREATEST, USUAL = 100, 10  # objects of a page


def within(moment: int, bound: Any) -> bool:
    """`created` as a moment or as bounds gt, gte, lt, lte."""
    if not isinstance(bound, dict):
        return moment == int(bound)
    tests: dict[str, Callable[[int], bool]] = {
        "gt": lambda bound: moment > bound,
        "gte": lambda bound: moment >= bound,
        "lt": lambda bound: moment < bound,
        "lte": lambda bound: moment <= bound,
    }
    return all(tests[name](bound) for name, bound in bound.items())


def page(call: Call, objects: Sequence[Json], *, url: str, equal: Sequence[str] = ()) -> Json:
    """One page of `objects`, which are in order of creation, filtered by `created` and the `equal` fields."""
    matches = [one for one in reversed(objects) if not one.get("deleted")]
    for name in equal:
        if name in call.params:
            matches = [one for one in matches if one.get(name) == call.params[name]]
    for name in ("created", "arrival_date"):
        if name in call.params:
            matches = [one for one in matches if within(one[name], call.params[name])]
    shown, more = cut(call, matches)
    return {"object": "list", "data": copy.deepcopy(shown), "has_more": more, "url": url}


def cut(call: Call, matches: list[Json]) -> tuple[list[Json], bool]:
    limit = call.get("limit", USUAL)
    if not 1 <= limit <= GREATEST:
        raise invalid(f"Invalid limit: it is at least 1 and at most {GREATEST}.", param="limit")
    after, before = call.get("starting_after"), call.get("ending_before")
    if after and before:
        raise invalid("Give starting_after or ending_before, not both.", param="starting_after")
    if after:
        matches = matches[position(matches, after, "starting_after") + 1 :]
    if before:
        matches = matches[: position(matches, before, "ending_before")]
        return matches[-limit:], len(matches) > limit
    return matches[:limit], len(matches) > limit


def position(matches: list[Json], identifier: str, param: str) -> int:
    for place, one in enumerate(matches):
        if one["id"] == identifier:
            return place
    raise missing("object", identifier, param=param)
