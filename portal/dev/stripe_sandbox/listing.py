"""Lists: newest first, in pages."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from portal.dev.stripe_sandbox import shapes
from portal.dev.stripe_sandbox.errors import ApiError, Json, invalid, missing
from portal.dev.stripe_sandbox.requests import Call, Handler
from portal.dev.stripe_sandbox.state import State

GREATEST, USUAL = 100, 10  # objects of a page


def named(kind: str, *, param: str = "id") -> Handler:
    """A handler that answers the object of the path; `param` is what a refusal names."""
    return lambda call: call.state.named(kind, call.ids[0], param=param, in_path=True)


def listed(kind: str, *equal: str) -> Handler:
    """A handler that lists all of that kind, filtered by the parameters `equal`."""
    url = f"/v1/{kind.replace('.', '/')}s"
    return lambda call: page(call, call.state.all(kind), url=url, equal=equal)


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


DEEPEST = 4  # levels
INCLUDED = {("checkout.session", "line_items"), ("charge", "refunds")}  # lists that come only when asked for


def expanded(state: State, answer: Json, paths: list[str]) -> Json:
    """A copy of the answer with every path replaced; a path that leads nowhere is refused."""
    copied = copy.deepcopy(answer)
    for number, path in enumerate(paths):
        names = path.split(".")
        if len(names) > DEEPEST + (names[0] == "data"):
            raise invalid("You cannot expand more than 4 levels of a property.", param=f"expand[{number}]")
        try:
            expand(state, copied, names)
        except ApiError as refused:
            raise invalid(refused.message, param=f"expand[{number}]") from None
    return copied


def expand(state: State, node: Any, names: list[str]) -> None:
    if not names or node is None:
        return
    if isinstance(node, list):
        for one in node:
            expand(state, one, names)
        return
    name, kind = names[0], node.get("object", "")
    if kind == "list" and name == "data":
        expand(state, node["data"], names[1:])
        return
    if (kind, name) in INCLUDED:
        node[name] = included(state, node, name)
    elif isinstance(node.get(name), str) and may_expand(kind, name):
        node[name] = copy.deepcopy(state.anywhere(node[name]))
    elif not may_expand(kind, name) and not isinstance(node.get(name), dict | list):
        raise invalid(f"This property cannot be expanded ({name}).")
    expand(state, node.get(name), names[1:])


def may_expand(kind: str, name: str) -> bool:
    return name in shapes.expandable(kind)


def included(state: State, node: Json, name: str) -> Json:
    if name == "line_items":
        data, url = state.hidden(node["id"])["line_items"], f"/v1/checkout/sessions/{node['id']}/line_items"
    else:
        data = [one for one in reversed(state.all("refund")) if one["charge"] == node["id"]]
        url = f"/v1/charges/{node['id']}/refunds"
    return {"object": "list", "data": copy.deepcopy(data), "has_more": False, "url": url}
