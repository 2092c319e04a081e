"""The ids of objects in addresses and answers."""

from __future__ import annotations

from portal.api.problems import not_found
from portal.core import identifiers
from portal.core.identifiers import write

__all__ = ["read", "write"]


def read(kind: str, text: str) -> int:
    """The row's key. Raises ProblemError 404 for what is no id of this kind."""
    try:
        return identifiers.read(kind, text)
    except ValueError:
        raise not_found() from None
