"""Line drawings that the server makes: points of SVG, in whole units. Each has a table of the same values behind it."""

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
    marks: tuple[str, str, str],
) -> Plot:
    """A line, what is expected after it, and a polygon of what may be; `marks`: top, left and right end."""
    every = [*line, *expected, *band]
    frame = Frame(
        min((x for x, _ in every), default=Fraction(0)),
        max((x for x, _ in every), default=Fraction(0)),
        max((y for _, y in every), default=Fraction(0)),
    )
    top, first, last = marks
    return Plot(
        line=frame.points(line),
        dashed=frame.points(expected),
        band=frame.points(band),
        high=top,
        first=first,
        last=last,
        width=frame.width,
        height=frame.height,
    )
