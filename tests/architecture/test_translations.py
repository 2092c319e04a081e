"""What tenants read is marked for translation, and German is there for all of it."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from html.parser import HTMLParser

from babel.messages.catalog import Message

from portal.dev import catalog

SAME = frozenset(
    (
        "ClusterTab",
        "CSV",
        "PDF",
        "IBAN",
        "BIC",
        "QOS",
        "GPU",
        "GPUs",
        "XML",
        "kWh",
        "Stripe",
        "UTC",
        "SHA-256",
        "ms",
    )
)
READ = ("aria-label", "placeholder", "title", "alt", "data-label")
PLACES = re.compile(r"%\((\w+)\)[sd]")


def test_the_catalog_has_german_for_all_that_tenants_read() -> None:
    """`python -m portal.dev.catalog` adds what is new; write its German into locale/de, and run it again."""
    committed = catalog.GERMAN.read_text("utf-8")
    current = catalog.merged(catalog.extract_messages(), catalog.read_catalog())
    assert catalog.missing(current) == []
    assert catalog.as_text(current) == committed


def test_a_translation_has_the_places_of_its_text() -> None:
    wrong = [
        (text, german)
        for message in catalog.read_catalog()
        for text, german in _pairs(message)
        if german and _places(text) != _places(german)
    ]
    assert wrong == []


def test_what_has_two_forms_is_not_marked_in_one_too() -> None:
    """The catalog keeps it once, with both forms, and gettext does not read the first of them before Python 3.11.5."""
    one, two = set(), set()
    for _name, message, context in catalog.marked():
        if isinstance(message, str):
            one.add((message, context))
        else:
            two.add((message[0], context))
    assert two
    assert one & two == set()


def _pairs(message: Message) -> Iterator[tuple[str, str]]:
    """Of two forms the second, which has the number in it, too."""
    if isinstance(message.id, str):
        yield message.id, str(message.string)
    elif message.id:
        yield from zip(message.id, message.string or (), strict=True)


def _places(text: str) -> set[str]:
    if named := PLACES.findall(text):
        return set(named)
    try:
        return {name for _, name, _, _ in string.Formatter().parse(text) if name}
    except ValueError:  # a brace that is none of ours
        return set()


def test_no_text_of_a_template_is_left_unmarked() -> None:
    pages = [path for path in catalog.sources() if path.suffix == ".html"]
    left = [
        f"{path.relative_to(catalog.ROOT)}: {text}"
        for path in pages
        for text in unmarked(path.read_text("utf-8"))
    ]
    assert len(pages) > 80
    assert "\n".join(left) == ""
    assert list(unmarked('<p title="{{ x }} of">{% if a %}Some <b>{% translate "text" %}</b>{% endif %}</p>'))


def unmarked(source: str) -> Iterator[str]:
    """Texts and read attributes with letters that stand in the template itself."""
    source = re.sub(r"{% comment %}.*?{% endcomment %}|{#.*?#}", "", source, flags=re.DOTALL)
    source = re.sub(r"{% blocktrans(late)?\b.*?{% endblocktrans(late)? %}", "", source, flags=re.DOTALL)
    source = re.sub(r"{%.*?%}", " ", source, flags=re.DOTALL)
    source = re.sub(r"{{.*?}}", "…", source, flags=re.DOTALL)
    reader = _Reader()
    reader.feed(source)
    for text in reader.texts:
        for part in re.split(r"[…\s·:,()]+", text):
            if re.search(r"[A-Za-z]{2}", re.sub(r"&\w+;", "", part)) and not _is_same(part):
                yield " ".join(text.split())
                break


def _is_same(word: str) -> bool:
    """The same in both languages, or a class of an element."""
    return word.strip(".") in SAME or word.startswith("ct-") or word == "card-body"


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.unread = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.unread += tag in {"script", "style", "code"}
        self.texts += [value for name, value in attrs if name in READ and value]

    def handle_endtag(self, tag: str) -> None:
        self.unread -= tag in {"script", "style", "code"}

    def handle_data(self, data: str) -> None:
        if not self.unread:
            self.texts.append(data)
