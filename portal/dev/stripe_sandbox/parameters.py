"""Which parameters a request may have: read from the typed parameter classes of the installed stripe package.

Those classes are generated from Stripe's OpenAPI document, so nothing of it is written down here.
"""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin
from urllib.parse import parse_qsl

import stripe
import typing_extensions
from stripe import params as typed

from portal.dev.stripe_sandbox.errors import ApiError, Json, invalid

REFUSED = {
    "payment_method_types": "The parameter payment_method_types is refused since 2026-09-30.endive; "
    "use allowed_payment_method_types instead."
}


@cache
def of_class(name: str) -> Any:
    """The class that describes a request, `PaymentIntentCreateParams` or `checkout.SessionCreateParams`."""
    described: Any = typed
    for part in name.split("."):
        described = getattr(described, part)
    return described


@cache
def options() -> frozenset[str]:
    """What the classes inherit for the client itself; it never travels as a parameter."""
    return frozenset(stripe.RequestOptions.__annotations__)


@cache
def fields(described: Any) -> dict[str, Any]:
    context = {"StripeContext": stripe.StripeContext, "Mapping": Mapping}  # named by what they inherit
    hints = typing_extensions.get_type_hints(described, localns=context, include_extras=True)
    return {name: hint for name, hint in hints.items() if name not in options()}


def checked(name: str, params: Json) -> Json:
    """The values in their types, or a 400 that names the first parameter that is not allowed."""
    described = of_class(name)
    for refused, why in REFUSED.items():
        if refused in params and refused not in fields(described):
            raise invalid(why, param=refused, code="parameter_unknown")
    return of_fields(params, described, "")


def of_fields(params: Json, described: Any, path: str) -> Json:
    hints = fields(described)
    for name in params:
        if name not in hints:
            spelled = below(path, name)
            raise invalid(f"Received unknown parameter: {spelled}", param=spelled, code="parameter_unknown")
    for name in described.__required_keys__ - options():
        if name not in params:
            spelled = below(path, name)
            raise invalid(f"Missing required param: {spelled}.", param=spelled, code="parameter_missing")
    return {name: value(raw, hints[name], below(path, name)) for name, raw in params.items()}


def below(path: str, name: str) -> str:
    return f"{path}[{name}]" if path else name


def value(raw: Any, hint: Any, path: str) -> Any:
    origin = get_origin(hint)
    if origin in {typing_extensions.NotRequired, typing_extensions.Required}:
        return value(raw, get_args(hint)[0], path)
    if origin in {Union, types.UnionType}:
        return one_of(raw, get_args(hint), path)
    if origin is Literal:
        return literal(raw, get_args(hint), path)
    if origin is list:
        return listed(raw, get_args(hint)[0], path)
    if origin in {dict, Mapping} or getattr(origin or hint, "__name__", "") == "UntypedStripeObject":
        return mapped(raw, path)
    if typing_extensions.is_typeddict(hint):
        if not isinstance(raw, dict):
            raise invalid(f"Invalid object: {path} is given as {raw!r}.", param=path)
        return of_fields(raw, hint, path)
    return scalar(raw, hint, path)


def one_of(raw: Any, alternatives: tuple[Any, ...], path: str) -> Any:
    """The first alternative that fits. Enumerations are open in the types for later versions, not on the wire."""
    words = [word for one in alternatives if get_origin(one) is Literal for word in get_args(one)]
    if raw == "" and "" in words:
        return ""
    named = [word for word in words if word != ""]
    if named and raw in named:
        return raw
    others = [one for one in alternatives if get_origin(one) is not Literal and one is not type(None)]
    if named:
        others = [one for one in others if one is not str]
    refusals = []
    for one in others:
        try:
            return value(raw, one, path)
        except ApiError as refused:
            refusals.append(refused)
    if refusals:
        raise max(refusals, key=lambda refused: len(str(refused.error.get("param", ""))))
    return literal(raw, tuple(named), path)


def literal(raw: Any, words: tuple[Any, ...], path: str) -> Any:
    for word in words:
        if raw == (str(word).lower() if isinstance(word, bool) else str(word)):
            return word
    raise invalid(f"Invalid {path}: must be one of {', '.join(map(str, words))}", param=path)


def listed(raw: Any, hint: Any, path: str) -> list[Any]:
    if not isinstance(raw, dict) or not all(key.isdigit() for key in raw):
        raise invalid(f"Invalid array: {path} is given as {raw!r}.", param=path)
    return [value(raw[key], hint, below(path, key)) for key in sorted(raw, key=int)]


def mapped(raw: Any, path: str) -> Json:
    """Metadata: at most 50 names of 40 characters, each to a text of 500."""
    if not isinstance(raw, dict):
        raise invalid(f"Invalid object: {path} is given as {raw!r}.", param=path)
    if len(raw) > 50:
        raise invalid(f"{path} may have at most 50 keys.", param=path)
    for name, text in raw.items():
        if not isinstance(text, str):
            raise invalid(f"{below(path, name)} has to be a text.", param=below(path, name))
        if len(name) > 40 or len(text) > 500:
            raise invalid(
                f"{below(path, name)} is too long: keys of metadata have 40 characters, values 500.",
                param=below(path, name),
            )
    return dict(raw)


def scalar(raw: Any, hint: Any, path: str) -> Any:
    if not isinstance(raw, str):
        raise invalid(f"Invalid {getattr(hint, '__name__', 'value')}: {path} is an object.", param=path)
    if hint is bool:
        return boolean(raw, path)
    if hint is int:
        if not re.fullmatch(r"-?\d+", raw):
            raise invalid(f"Invalid integer: {raw}", param=path, code="parameter_invalid_integer")
        return int(raw)
    if hint in {Decimal, float}:
        try:
            return str(Decimal(raw))
        except InvalidOperation:
            raise invalid(f"Invalid decimal: {raw}", param=path) from None
    if raw == "":
        raise invalid(
            f"{path} is empty, which would unset it, and it cannot be unset: leave it out or give a value.",
            param=path,
            code="parameter_invalid_empty",
        )
    return raw


def boolean(raw: str, path: str) -> bool:
    if raw not in {"true", "false"}:
        raise invalid(f"Invalid boolean: {raw}", param=path)
    return raw == "true"


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
