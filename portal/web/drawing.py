"""Drawings that the server makes: lines and stacked columns, in whole units of SVG.

Each has a table of the same values behind it, and needs no script.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

Point = tuple[Fraction, Fraction]


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A line drawing in a field of `width` × `height`, y downwards; each text is points of SVG, or empty."""

    line: str  # what is known
    dashed: str = ""  # what is expected
    band: str = ""  # a polygon around it
    level: str = ""  # across all of it, as what may be reached
    high: str = ""  # of the axes, as shown
    first: str = ""
    last: str = ""
    width: int = 600
    height: int = 200


@dataclass(frozen=True, slots=True)
class Frame:
    """What a drawing shows: x from `left` to `right`, y from zero to `top`."""

    left: Fraction
    right: Fraction
    top: Fraction
    width: int = 600
    height: int = 200

    def points(self, values: Iterable[Point]) -> str:
        """`0,200 300,100`"""
        return " ".join(f"{self._x(x)},{self._y(y)}" for x, y in values)

    def _x(self, x: Fraction) -> int:
        return round((x - self.left) * self.width / (self.right - self.left)) if self.right > self.left else 0

    def _y(self, y: Fraction) -> int:
        return self.height - (round(y * self.height / self.top) if self.top > 0 else 0)


def plot(
    line: Sequence[Point],
    *,
    expected: Sequence[Point] = (),
    band: Sequence[Point] = (),
    level: Fraction | None = None,
    marks: tuple[str, str, str],
) -> Plot:
    """A line, what is expected after it, a polygon of what may be, and a line across at `level`; `marks`: top, left and
    right end.
    """
    every = [*line, *expected, *band]
    left = min((x for x, _ in every), default=Fraction(0))
    right = max((x for x, _ in every), default=Fraction(0))
    frame = Frame(left, right, max([*(y for _, y in every), level or Fraction(0)]))
    top, first, last = marks
    return Plot(
        line=frame.points(line),
        dashed=frame.points(expected),
        band=frame.points(band),
        level=frame.points([(left, level), (right, level)]) if level is not None else "",
        high=top,
        first=first,
        last=last,
        width=frame.width,
        height=frame.height,
    )


GAP = Fraction(1, 5)  # of a column
STEPS = (
    1,
    2,
    4,
    5,
    6,
    8,
    10,
)  # where an axis may end, times a power of ten: half of it is short to write too


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A rectangle of a column; `series` is its place from 0, or None for what has no color of its own."""

    series: int | None
    y: int
    height: int


@dataclass(frozen=True, kw_only=True)
class Stack:
    """A column: where it stands, and what is stacked in it."""

    x: int
    width: int
    segments: Sequence[Segment]


@dataclass(frozen=True, kw_only=True)
class Column:
    """A stack, what a pointer over it shows, and where it leads."""

    title: str
    href: str
    stack: Stack


def stacks(
    columns: Sequence[Sequence[tuple[int | None, Fraction]]],
    *,
    top: Fraction,
    width: int = 1000,
    height: int = 200,
) -> list[Stack]:
    """Each column's values, stacked in their order from the bottom, in a field of `width` × `height`.

    What is less than half a unit high is not drawn, and nothing is where `top` is zero.
    """
    each = Fraction(width, max(len(columns), 1))
    margin, wide = each * GAP / 2, max(round(each * (1 - GAP)), 1)
    scale = height / top if top > 0 else Fraction(0)
    drawn = []
    for number, column in enumerate(columns):
        segments, below, low = [], Fraction(0), 0
        for series, value in column:
            if not value:
                continue
            below += value
            high = round(below * scale)
            if high > low:
                segments.append(Segment(series=series, y=height - high, height=high - low))
            low = high
        drawn.append(Stack(x=round(each * number + margin), width=wide, segments=segments))
    return drawn


def axis_end(highest: Fraction) -> Fraction:
    """The next round number: 4000 of 3100, 0.2 of 0.13; zero of nothing."""
    if highest <= 0:
        return Fraction(0)
    power = Fraction(1)
    while power * 10 <= highest:
        power *= 10
    while power > highest:
        power /= 10
    return next(power * step for step in STEPS if power * step >= highest)
