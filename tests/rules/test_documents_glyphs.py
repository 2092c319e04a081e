"""Which characters are printed, and what stands for the others."""

import pytest

from billing.documents.glyphs import printable


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        ("Zoë €1,234.56 −7", "Zoë €1,234.56 −7"),
        ("Ελληνικά Кириллица العربية עברית", "Ελληνικά Кириллица العربية עברית"),
        ("東京 客户 한국어", "東京 客户 한국어"),
        ("rocket \N{ROCKET}!", "rocket □!"),  # no bundled font draws it
        ("private \ue000", "private □"),
        ("half \ud800", "half □"),
        ("two\nlines\x00and\ta tab", "two lines and a tab"),
        ("\N{RIGHT-TO-LEFT OVERRIDE}00.01", "00.01"),
        ("soft\N{SOFT HYPHEN}ware", "software"),
    ],
)
def test_a_text_becomes_what_the_bundled_fonts_can_print(written: str, printed: str) -> None:
    assert printable(written) == printed
