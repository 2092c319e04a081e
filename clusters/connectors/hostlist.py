"""Slurm's lists of nodes, `gpu[01-03,7],cpu1`, as names."""

from __future__ import annotations

import re
from functools import lru_cache

MOST = 65_536  # names in one list: Slurm's own limit of a range
_PART = re.compile(r"(?:[^\[\],\s]+|\[[\d,-]+\])+", re.ASCII)
_PIECE = re.compile(r"([^\[\]]+)|\[([^\]]+)\]")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)
_OUTSIDE_BRACKETS = re.compile(r",(?![^\[]*\])")


@lru_cache(maxsize=1024)
def node_names(text: str) -> frozenset[str]:
    """Raises `ValueError` for what is no list of nodes, or is one of more than `MOST`."""
    names: set[str] = set()
    for part in _OUTSIDE_BRACKETS.split(text):
        if not _PART.fullmatch(part):
            raise ValueError(f"{part!r} names no nodes.")
        starts = [""]
        for fixed, ranges in _PIECE.findall(part):
            ends = [fixed] if fixed else _numbers(ranges)
            _refuse_many(len(starts) * len(ends))
            starts = [start + end for start in starts for end in ends]
        names.update(starts)
        _refuse_many(len(names))
    return frozenset(names)


def _numbers(ranges: str) -> list[str]:
    """`01-03,7` → 01, 02, 03, 7."""
    numbers: list[str] = []
    for text in ranges.split(","):
        match = _RANGE.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no range of nodes.")
        first, last = int(match[1]), int(match[2] or match[1])
        _refuse_many(last - first)
        numbers += [f"{number:0{len(match[1])}d}" for number in range(first, last + 1)]
        _refuse_many(len(numbers))
    return numbers


def _refuse_many(number: int) -> None:
    if number > MOST:
        raise ValueError(f"A list names more than {MOST} nodes.")
