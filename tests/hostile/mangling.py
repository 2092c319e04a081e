"""Spoiling what a door is given: bytes, JSON and fields of forms. The same seed spoils in the same way."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from random import Random
from typing import Any

from tests.tiers import examples

INPUTS = examples(100, 10_000)
"""How many each door is given: few in its tier, many with `--long`."""
LONG = "x" * 5_000
REPEATED = "x" * 81  # a sentence repeats 80 characters of what it was given
DEEP = b"[" * 100_000

BYTES = (
    b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"\n", b"\r\n", b"|", b'"', b"{", b"}", b"[", b"]", b"<", b">", b"&", b";",
    b"-", b"9" * 400, b"1e999999", b"NaN", b"null", b"\xd9\xa3", LONG.encode(), b"[[", b'{"a":', b"'", b"=",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**200, -(2**63), 0.5, 1e308, "", " ", "0", "-1", "NaN", "Infinity",
    "1e999999999", "9" * 5000, "\x00", "a\x00b", "\ud800", "\u202e", "٣", "'", "%s", "{0}", "../../etc/passwd", "null",
    LONG, [], {}, [[]], [1, "a", None], {"": None}, {"set": True, "number": "1"}, [{"a": [{}]}],
)  # fmt: skip
TEXTS = (
    "", " ", "\x00", "a\x00b", "\ud800", "\u202e", "٣", "0", "-1", "-0", "1.5", "1,5", "1e9999", "NaN", "Infinity",
    "9" * 400,
    "9223372036854775808", "2026-02-30", "0000-00-00", "9999-12-31", "1970-01-01", "2026-03-29T02:30", "on", "yes",
    "true",
    "%s", "{0}", "'\"<>&", "<script>", "../..", "null", "[]", "{}", "a" * 300, LONG, "\n", "\r\n\r\n", "é", "ＡＢＣ",
)  # fmt: skip


class Mangler(Random):
    """A source of chance that spoils things."""

    def spoil(self, data: bytes) -> bytes:
        """Bytes with some cut out and others put there."""
        for _ in range(self.randint(1, 4)):
            at = self.randrange(len(data) + 1)
            data = data[:at] + self.choice(BYTES) + data[at + self.choice((0, 0, 1, 5, 60)) :]
        if self.random() < 0.05:
            data = data[: self.randrange(len(data) + 1)]
        return data

    def spoil_json(self, value: Any) -> bytes:
        """The JSON of a value with some of it replaced, doubled or taken away; sometimes not even JSON."""
        value = copy.deepcopy(value)
        for _ in range(self.randint(1, 3)):
            places = list(_places(value))
            if not places:
                value = self.choice(VALUES)
                continue
            parent, key = self.choice(places)
            done = self.random()
            if done < 0.15:
                del parent[key]
            elif done < 0.25:
                parent[key] = [parent[key], copy.deepcopy(parent[key])]
            else:
                parent[key] = copy.deepcopy(self.choice(VALUES))
        data = json.dumps(value).encode()
        chance = self.random()
        if chance < 0.1:
            return self.spoil(data)
        return self.choice((DEEP, DEEP + b"]" * 100_000, b"[" + data + b"]", b"")) if chance < 0.13 else data

    def spoil_form(self, fields: dict[str, str]) -> dict[str, Any]:
        """Fields with other words in some of them, some taken away, and now and then one given twice."""
        spoilt: dict[str, Any] = dict(fields)
        for name in self.sample(sorted(spoilt), k=min(len(spoilt), self.randint(1, 3))):
            chance = self.random()
            if chance < 0.1:
                del spoilt[name]
            elif chance < 0.2:
                spoilt[name] = [self.choice(TEXTS), self.choice(TEXTS)]
            else:
                spoilt[name] = self.choice(TEXTS)
        return {name: _sendable(value) for name, value in spoilt.items()}

    def text(self) -> str:
        return str(_sendable(self.choice(TEXTS)))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in lists and objects, by what holds it and its key there."""
    for key in (
        list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    ):
        yield value, key
        yield from _places(value[key])


def _sendable(value: Any) -> Any:
    """As a client can send it: halves of surrogate pairs go as the bytes that are no UTF-8."""
    if isinstance(value, list):
        return [_sendable(item) for item in value]
    return value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
