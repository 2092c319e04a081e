"""The language in which amounts, dates and names of countries are written: of whoever reads them, set at the edges."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

ENGLISH = "en"
GERMAN = "de"


@dataclass(frozen=True, slots=True)
class Locale:
    """How one language writes numbers and days; patterns as in Unicode's TR 35."""

    name: str  # as Babel has it
    group: str
    decimal: str
    day: str
    short_day: str
    written_day: str  # in letters
    is_symbol_last: bool  # `12,50 €` rather than `€12.50`


LOCALES = {
    ENGLISH: Locale("en_US", ",", ".", "d MMM y", "d MMM", "d MMMM y", is_symbol_last=False),
    GERMAN: Locale("de_DE", ".", ",", "dd.MM.y", "dd.MM.", "d. MMMM y", is_symbol_last=True),
}

_language: ContextVar[str] = ContextVar("language", default=ENGLISH)


def current() -> str:
    """`en` or `de`."""
    return _language.get()


def locale() -> Locale:
    return LOCALES[_language.get()]


@contextmanager
def written_in(language: str) -> Iterator[None]:
    """Numbers and dates of this language; English for one that there is none of."""
    token = _language.set(language if language in LOCALES else ENGLISH)
    try:
        yield
    finally:
        _language.reset(token)
