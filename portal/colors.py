"""The operator's color on light and dark grounds: contrasts as WCAG 2.2 computes them, and the shades that have them.

A color is `#rrggbb` in lower case. It imports nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256

TEXT, SHAPE = 4.5, 3.0
"""What level AA asks of text, and of shapes such as a button's edge (success criteria 1.4.3 and 1.4.11)."""
WHITE, BLACK = "#ffffff", "#000000"
LIGHT_GROUND, DARK_GROUND = "#f2f4f7", "#2a2f36"
"""The darkest ground of the light theme that links stand on, and the lightest of the dark one (`clustertab.css`)."""
DARK_CARD, SIDE = "#1d2025", "#1b1e23"
COLOR = re.compile(r"#[0-9a-f]{6}\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class Palette:
    """The shades of one color: `fill` has white text on it, `accent` is text and lines."""

    fill: str
    fill_dark: str
    accent: str
    accent_dark: str
    current: str  # the ground of the current entry in the menu, which is dark in both themes


@lru_cache(64)
def palette(color: str) -> Palette:
    """Of a color with enough contrast to white: the lighter and darker shades that are readable in each theme."""
    bright = shade(color, WHITE, ground=DARK_GROUND, ratio=TEXT)
    return Palette(
        fill=color,
        fill_dark=shade(color, WHITE, ground=DARK_CARD, ratio=SHAPE),
        accent=shade(color, BLACK, ground=LIGHT_GROUND, ratio=TEXT),
        accent_dark=bright,
        current=mix(SIDE, bright, 22),
    )


def contrast(one: str, other: str) -> float:
    """From 1 to 21 (WCAG 2.2, contrast ratio)."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def written_ratio(one: str, other: str) -> str:
    """`4.49`: cut off, so that it never reads as more than there is."""
    hundredths = int(contrast(one, other) * 100)
    return f"{hundredths // 100}.{hundredths % 100:02}"


def shade(color: str, towards: str, *, ground: str, ratio: float) -> str:
    """The color, mixed with as little of `towards` as gives it that contrast to the ground."""
    return next(mixed for part in range(101) if contrast(mixed := mix(color, towards, part), ground) >= ratio)


def mix(color: str, other: str, part: int) -> str:
    """With so many per cent of the other."""
    pairs = zip(_channels(color), _channels(other), strict=True)
    return "#" + "".join(f"{round((own * (100 - part) + more * part) / 100):02x}" for own, more in pairs)


@lru_cache(64)
def stylesheet(color: str) -> str:
    """What replaces the colors of `clustertab.css`."""
    own = palette(color)
    values = {
        "--ct-accent": f"light-dark({own.accent},{own.accent_dark})",
        "--ct-fill": f"light-dark({own.fill},{own.fill_dark})",
        "--ct-side-current": own.current,
        "--ct-side-mark": own.accent_dark,
        "--tblr-primary": f"light-dark({own.fill},{own.fill_dark})",
        "--tblr-link-color": f"light-dark({own.accent},{own.accent_dark})",
    }
    return ":root,[data-bs-theme]{" + ";".join(f"{name}:{text}" for name, text in values.items()) + "}\n"


def stylesheet_name(color: str) -> str:
    """`0b57a8-5f2c…`: another one for each content, so that it may be kept for ever."""
    return f"{color[1:]}-{sha256(stylesheet(color).encode()).hexdigest()[:16]}"


def _channels(color: str) -> tuple[int, int, int]:
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


def _luminance(color: str) -> float:
    """Relative luminance, from 0 to 1."""
    red, green, blue = (_linear(channel / 255) for channel in _channels(color))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else float(((channel + 0.055) / 1.055) ** 2.4)
