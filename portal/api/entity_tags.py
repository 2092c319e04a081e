"""Entity tags (RFC 9110, 8.8.3): by them a reader learns that it has an object, a writer that it was changed.

A tag has two parts. The first is of what somebody sets, the second of the whole answer: what changes by itself, such
as when a key was last used, makes a new tag for readers, and refuses no change to writers.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Any

_TAG = re.compile(r'(?:W/)?"([^"]*)"')
_DIGITS = 16  # hexadecimal, of each part


def tag_of(settled: Any, whole: bytes) -> str:
    """Of what was set, in the types of JSON, and of the bytes that are answered."""
    return f'"{_digest(json.dumps(settled, sort_keys=True).encode())}-{_digest(whole)}"'


def is_known(header: str, tag: str) -> bool:
    """Whether `If-None-Match` names just this answer."""
    return header.strip() == "*" or tag.strip('"') in _TAG.findall(header)


def is_same(header: str, settled: Any) -> bool:
    """Whether `If-Match` names a tag of an object of which the same was set."""
    wanted = tag_of(settled, b"").strip('"').partition("-")[0]
    return header.strip() == "*" or wanted in (tag.partition("-")[0] for tag in _TAG.findall(header))


def without(data: Any, moving: Iterable[str]) -> Any:
    """The object without the fields that change by themselves."""
    return {name: value for name, value in data.items() if name not in {*moving}}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGITS]
