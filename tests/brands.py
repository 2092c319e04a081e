"""An operator's brand, and the pictures that are sent as its logo."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from PIL import Image, ImageDraw

from portal.core.tenants.brand import set_brand
from portal.core.tenants.logos import Logo, encode_logo

NAME, COLOR = "Nimbus Compute", "#7a1f5c"


def a_picture(
    width: int = 300, height: int = 300, *, kind: str = "PNG", ink: str = COLOR, **options: Any
) -> bytes:
    """A ring on nothing, or on white where the format knows no transparency."""
    picture = Image.new("RGBA", (width, height), (0, 0, 0, 0))
    ImageDraw.Draw(picture).ellipse((4, 4, width - 5, height - 5), outline=ink, width=min(width, height) // 5)
    if kind == "JPEG":
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("RGB")
    out = BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


def a_brand(*, name: str = NAME, color: str = COLOR, logo: bytes | None = None) -> Logo:
    """Saved; its logo as it is stored."""
    encoded = encode_logo(a_picture() if logo is None else logo)
    set_brand(name=name, color=color, logo=encoded)
    return encoded
