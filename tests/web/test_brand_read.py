"""What a preview of a logo promises, and what happens where the brand cannot be read."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from django.db import OperationalError
from PIL import Image, ImageDraw

from portal.core.tenants import brand
from portal.core.tenants.brand import CurrentBrand, current_brand
from portal.core.tenants.logos import BrandError, encode_logo
from tests.brands import a_picture


def test_a_logo_that_is_previewed_is_saved_as_it_was() -> None:
    """The preview is sent again and encoded anew: to the same bytes, also of a picture with too many colors."""
    picture = Image.new("RGBA", (3000, 700), (0, 0, 0, 0))
    for x in range(0, 3000, 50):
        ImageDraw.Draw(picture).line((x, 0, 3000 - x, 700), fill=(200, 30, x % 255, 180), width=7)
    out = io.BytesIO()
    picture.save(out, "PNG")
    logo = encode_logo(out.getvalue())
    assert encode_logo(logo.png) == logo
    with pytest.raises(BrandError, match="smaller than 16 pixels"):  # at once, and not only when it is saved
        encode_logo(a_picture(3000, 40))


def test_a_brand_that_cannot_be_read_costs_a_page_its_logo_and_a_transaction_nothing_unsaid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PostgreSQL answers a COMMIT with a ROLLBACK after an error, and no exception says so."""

    def fail() -> CurrentBrand:
        raise OperationalError("canceling statement due to lock timeout")

    monkeypatch.setattr(brand, "load_brand", fail)
    monkeypatch.setattr(brand, "connection", SimpleNamespace(in_atomic_block=True))
    brand.forget_brand()
    with pytest.raises(OperationalError):
        current_brand()
    monkeypatch.setattr(brand, "connection", SimpleNamespace(in_atomic_block=False))
    assert current_brand() == brand.last_brand()
