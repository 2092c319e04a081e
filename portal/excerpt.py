"""What was given, as a sentence for people repeats it: never more than a line of it."""

from __future__ import annotations

from typing import Final

MOST: Final = 80  # characters


def excerpt(value: object, most: int = MOST) -> str:
    """The first of its characters, and an ellipsis where there are more."""
    text = str(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def quoted(value: object) -> str:
    """The same in quotes, with what is no printable character written out; a number or a day as it is."""
    return repr(excerpt(value)) if isinstance(value, str) else excerpt(repr(value))
