"""`expand[]`: ids become the objects that they name."""

from __future__ import annotations

import copy
from typing import Any

from portal.dev.stripe_sandbox import shapes
from portal.dev.stripe_sandbox.errors import ApiError, Json, invalid
from portal.dev.stripe_sandbox.state import State

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
