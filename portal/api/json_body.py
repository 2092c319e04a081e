"""Strict JSON: what is ambiguous or meant to hurt is refused before anything reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import IO, Any

from rest_framework.parsers import BaseParser

from portal.api.problems import ProblemError, bad_request

LARGEST = 1 << 20  # bytes
DEEPEST = 20
_BRACKETS = {ord("{"): 1, ord("["): 1, ord("}"): -1, ord("]"): -1}


class StrictJson(BaseParser):
    """No duplicate names, no NaN, no NUL, nested 20 deep at most; a number with a fraction is refused.

    Amounts and quantities are strings, so that no reader on the way rounds them.
    """

    media_type = "application/json"

    def parse(
        self,
        stream: IO[bytes],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Of a request, as far as its endpoint takes bodies."""
        del media_type
        largest = getattr((parser_context or {}).get("view"), "largest_body", LARGEST)
        return loads(stream.read(largest + 1), largest=largest)


def loads(raw: bytes, *, largest: int = LARGEST) -> Any:
    """The value of a body. Raises ProblemError (400 or 413)."""
    if len(raw) > largest:
        raise ProblemError(413, "too-large", "The body is too large", f"Send at most {largest} bytes.")
    if _depth(raw) > DEEPEST:
        raise bad_request(f"The body is nested more than {DEEPEST} deep.")
    try:
        text = raw.decode("utf-8")
        return _clean(
            json.loads(
                text,
                object_pairs_hook=_object,
                parse_constant=_constant,
                parse_float=_fraction,
                parse_int=_integer,
            )
        )
    except UnicodeDecodeError:
        raise bad_request("The body is not UTF-8.") from None
    except json.JSONDecodeError as error:
        raise bad_request(
            f"The body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}."
        ) from None


def _depth(raw: bytes) -> int:
    """How deep brackets nest; those inside of strings count too, which only refuses more."""
    deepest = depth = 0
    in_string = escaped = False
    for byte in raw:
        if escaped:
            escaped = False
        elif in_string:
            escaped, in_string = byte == 0x5C, byte != 0x22
        elif byte == 0x22:
            in_string = True
        elif step := _BRACKETS.get(byte, 0):
            depth += step
            deepest = max(deepest, depth)
    return deepest


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = {}
    for name, value in pairs:
        _clean(name)
        if name in names:
            raise bad_request(
                f"The name {name!r} stands twice in one object.", (f"/{name}", "It stands twice.")
            )
        names[name] = _clean(value)
    return names


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        if "\0" in value:
            raise bad_request("A text has a NUL character in it.")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise bad_request("A text has half of a surrogate pair in it.") from None
    elif isinstance(value, list):
        for inner in value:
            _clean(inner)
    return value


def _constant(name: str) -> Any:
    raise bad_request(f"{name} is no value of JSON.")


def _fraction(text: str) -> Any:
    raise bad_request(
        f"Write {text[:40]} as a string: amounts and quantities are decimal strings, never numbers."
    )


def _integer(text: str) -> int:
    if len(text) > 19:
        raise bad_request(f"The number {text[:20]}… is too large.")
    return int(text)
