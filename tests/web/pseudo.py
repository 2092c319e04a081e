"""A language in which every translated letter is another one, so that what nobody translates stands out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

PLAIN = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
MARKED = "àƀćďèƒĝĥíĵķĺɱńòƥɋŕśťùṽŵẋýžÀƁĆĎÈƑĜĤÍĴĶĹṂŃÒƤɊŔŚŤÙṼŴẊÝŽ"
LETTERS = str.maketrans(PLAIN, MARKED)
PLACES = re.compile(r"(%\(\w+\)[sd]|\{[^}]*\}|<[^>]+>|&\w+;|%[sd])")
READ = ("aria-label", "placeholder", "title", "alt", "data-label")
UNREAD = {"script", "style", "code"}


def marked(text: str) -> str:
    """With other letters, but for its places and markup."""
    parts = PLACES.split(text)
    return "".join(part if n % 2 else part.translate(LETTERS) for n, part in enumerate(parts))


class Pseudo:
    """In the place of gettext's catalog of German: what has no German stays as it is."""

    domain = "django"

    def __init__(self, german: Any) -> None:
        self.known = german._catalog

    def gettext(self, message: str) -> str:
        return marked(message) if message in self.known else message

    def ngettext(self, one: str, many: str, number: int) -> str:
        said = one if number == 1 else many
        return marked(said) if (one, 0) in self.known else said

    def language(self) -> str:
        return "de"

    def to_language(self) -> str:
        return "de"


class _Texts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.open: list[tuple[str, bool]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if not self._is_english():
            self.texts += [value for name, value in attrs if name in READ and value]
            if tag == "input" and values.get("type") == "submit":
                self.texts.append(values.get("value") or "")
        if tag not in {"input", "img", "br", "hr", "meta", "link", "line", "rect", "col", "use", "path"}:
            self.open.append((tag, values.get("lang") == "en" or tag in UNREAD))

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        if not self._is_english():
            self.texts.append(data)

    def _is_english(self) -> bool:
        return any(english for _tag, english in self.open)


def texts_of(html: str) -> list[str]:
    """What the page says; what is marked as English is left out."""
    reader = _Texts()
    reader.feed(html)
    return reader.texts


def words_of(html: str) -> Iterator[tuple[str, str]]:
    """Each word that nobody translated, with the text around it; what is marked as English is left out."""
    for text in texts_of(html):
        for word in re.findall(r"(?<![\w.:@/&#-])[A-Za-z][A-Za-z'’]+(?![\w@/-]|[.:][\w/])", text):
            yield word, " ".join(text.split())[:100]
