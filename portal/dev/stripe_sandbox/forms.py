"""Form-encoded nested parameters: `a[b][c]=v` and `a[0]=v`, as Stripe reads them."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl

from portal.dev.stripe_sandbox.errors import Json, invalid

_NAME = re.compile(r"^([^\[\]]+)((?:\[[^\[\]]*\])*)$")


def decoded(text: str) -> Json:
    """Names to texts and to further names; a list is names "0", "1"… until its type is known."""
    root: Json = {}
    for name, value in parse_qsl(text, keep_blank_values=True):
        match = _NAME.match(name)
        if match is None:
            raise invalid(f"Invalid request: the name {name!r} is not one of nested parameters.", param=name)
        place(root, [match[1], *re.findall(r"\[([^\[\]]*)\]", match[2])], value, name)
    return root


def place(root: Json, path: list[str], value: str, name: str) -> None:
    node = root
    for key in path[:-1]:
        below = node.setdefault(key or str(len(node)), {})
        if not isinstance(below, dict):
            raise invalid(f"Invalid request: {name} is both a value and an object.", param=name)
        node = below
    last = path[-1] or str(len(node))
    if isinstance(node.get(last), dict):
        raise invalid(f"Invalid request: {name} is both a value and an object.", param=name)
    node[last] = value
