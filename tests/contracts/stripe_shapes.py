"""Whether an answer is what the classes of the installed stripe package say it is."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, ForwardRef, Literal, Union, get_args, get_origin

import stripe

from portal.dev.stripe_sandbox.shapes import CLASSES

LATER = {"deleted"}  # said of what is gone only


def wrong(value: Any, hint: Any, path: str) -> Iterator[str]:
    """Where the JSON differs from the annotation, each as one sentence."""
    origin = get_origin(hint)
    if origin is Union:
        problems = [
            list(wrong(value, one, path)) for one in get_args(hint) if (value is None) == (one is type(None))
        ]
        if not problems or all(problems):
            yield from min(problems, key=len) if problems else [f"{path} is {value!r}"]
    elif origin is list and isinstance(value, list):
        for number, one in enumerate(value):
            yield from wrong(one, get_args(hint)[0], f"{path}[{number}]")
    elif isinstance(value, dict) and str(value.get("object")) in CLASSES:
        yield from differences(value, path)
    elif inspect.isclass(hint) and issubclass(hint, stripe.StripeObject):
        yield from of_class(value, hint, path)
    elif not fits(value, hint):
        yield f"{path} is {value!r} and not {hint}"


def fits(value: Any, hint: Any) -> bool:
    """Of plain values, and of what the package types by another name."""
    origin = get_origin(hint)
    if origin is Literal:
        return value in get_args(hint)
    if isinstance(hint, ForwardRef) or origin is not None:
        return isinstance(value, dict)
    return not (hint is int and isinstance(value, bool)) and isinstance(value, hint or type(None))


def of_class(value: Any, hint: Any, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path} is no object: {value!r}"
        return
    hints = {name: one for name, one in hint.__annotations__.items() if name != "OBJECT_NAME"}
    for name in value:
        if hints and name not in hints:
            yield f"{path}.{name} is not in the package"
    for name, one in hints.items():
        optional = get_origin(one) is Union and type(None) in get_args(one)
        if name in value:
            yield from wrong(value[name], one, f"{path}.{name}")
        elif not optional and name not in LATER:
            yield f"{path}.{name} is missing"


def differences(value: dict[str, Any], path: str = "") -> Iterator[str]:
    yield from of_class(value, CLASSES[value["object"]], path or value["object"])
