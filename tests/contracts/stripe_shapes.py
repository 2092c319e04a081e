"""Whether an answer is what the classes of the installed stripe package say it is."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, ForwardRef, Literal, Union, get_args, get_origin

import stripe

from portal.dev.stripe_sandbox.shapes import CLASSES

LATER = {"deleted"}  # said of what is gone only


def wrong(told: Any, hint: Any, path: str) -> Iterator[str]:
    """Where the JSON differs from the annotation, each as one sentence."""
    origin = get_origin(hint)
    if origin is Union:
        found = [
            list(wrong(told, one, path)) for one in get_args(hint) if (told is None) == (one is type(None))
        ]
        if not found or all(found):
            yield from min(found, key=len) if found else [f"{path} is {told!r}"]
    elif origin is list and isinstance(told, list):
        for number, one in enumerate(told):
            yield from wrong(one, get_args(hint)[0], f"{path}[{number}]")
    elif isinstance(told, dict) and str(told.get("object")) in CLASSES:
        yield from differences(told, path)
    elif inspect.isclass(hint) and issubclass(hint, stripe.StripeObject):
        yield from of_class(told, hint, path)
    elif not fits(told, hint):
        yield f"{path} is {told!r} and not {hint}"


def fits(told: Any, hint: Any) -> bool:
    """Of plain values, and of what the package types by another name."""
    origin = get_origin(hint)
    if origin is Literal:
        return told in get_args(hint)
    if isinstance(hint, ForwardRef) or origin is not None:
        return isinstance(told, dict)
    return not (hint is int and isinstance(told, bool)) and isinstance(told, hint or type(None))


def of_class(told: Any, hint: Any, path: str) -> Iterator[str]:
    if not isinstance(told, dict):
        yield f"{path} is no object: {told!r}"
        return
    hints = {name: one for name, one in hint.__annotations__.items() if name != "OBJECT_NAME"}
    for name in told:
        if hints and name not in hints:
            yield f"{path}.{name} is not in the package"
    for name, one in hints.items():
        optional = get_origin(one) is Union and type(None) in get_args(one)
        if name in told:
            yield from wrong(told[name], one, f"{path}.{name}")
        elif not optional and name not in LATER:
            yield f"{path}.{name} is missing"


def differences(told: dict[str, Any], path: str = "") -> Iterator[str]:
    yield from of_class(told, CLASSES[told["object"]], path or told["object"])
