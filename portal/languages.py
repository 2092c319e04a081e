"""The languages that people read: English and German. What is for programs and operators stays English."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from tempfile import NamedTemporaryFile

from django.db import models
from django.utils import translation

from portal import locales

CATALOG = Path(__file__).resolve().parent.parent / "locale"


class Language(models.TextChoices):
    """What pages, e-mails and documents are written in."""

    ENGLISH = locales.ENGLISH, "English"
    GERMAN = locales.GERMAN, "Deutsch"


@contextmanager
def in_language(language: str) -> Iterator[None]:
    """Sentences, amounts and dates in this language; in English for one that there is none of."""
    chosen = language if language in Language.values else locales.ENGLISH
    with translation.override(chosen), locales.written_in(chosen):
        yield


def written_day(on: date) -> str:
    """`3 March 2026`, `3. März 2026`."""
    from babel.dates import format_date

    return str(format_date(on, locales.locale().written_day, locale=locales.locale().name))


def compile_catalogs() -> None:
    """Write what gettext reads beside each catalog that is newer than it. Any number of processes may at once."""
    for catalog in CATALOG.glob("*/LC_MESSAGES/*.po"):
        compiled = catalog.with_suffix(".mo")
        if compiled.exists() and compiled.stat().st_mtime >= catalog.stat().st_mtime:
            continue
        _compile(catalog, compiled)


def _compile(catalog: Path, compiled: Path) -> None:
    from babel.messages.mofile import write_mo  # several MiB, which few processes need
    from babel.messages.pofile import read_po

    with catalog.open("rb") as source:
        messages = read_po(source)
    with NamedTemporaryFile(dir=catalog.parent, suffix=".mo", delete=False) as target:
        write_mo(target, messages)
    written = Path(target.name)
    written.chmod(0o644)
    written.replace(compiled)
