"""The forms of a page, as a browser would send them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin, urlsplit

from django.db import transaction
from django.http import HttpResponse
from django.test import Client
from lxml import html

from tests.hostile.mangling import REPEATED


@dataclass(frozen=True)
class Form:
    """Where it goes, how, and what it holds before anybody writes into it."""

    path: str
    method: str
    fields: dict[str, str]

    def sent(self, client: Client, fields: dict[str, Any]) -> HttpResponse:
        """The answer; nothing of what it did is kept."""
        with transaction.atomic():
            answer = (client.post if self.method == "POST" else client.get)(self.path, fields)
            transaction.set_rollback(True)
        return answer  # type: ignore[return-value]  # of the test client, which has more


def forms_of(path: str, text: str) -> Iterator[Form]:
    """Those with something to fill in."""
    for form in html.fromstring(text).forms:
        fields = {
            name: value or "" for name, value in form.fields.items() if name and isinstance(value, str | None)
        }
        fields |= {name: "" for name in form.fields if name and name not in fields}
        buttons = form.xpath(".//button[@name and @value]")
        fields |= {button.get("name"): button.get("value") for button in buttons[:1]}
        fields.pop("csrfmiddlewaretoken", None)
        target = urlsplit(urljoin(path, form.action or path)).path
        if fields and "/accounts/" not in target:
            yield Form(target, form.method.upper(), fields)


def page_text(answer: HttpResponse) -> str:
    """What the page says in its own words: without what stands in the fields again."""
    if answer.streaming or "html" not in answer.get("Content-Type", "") or not answer.content:
        return ""
    page = html.fromstring(answer.content.decode())
    for field in page.xpath("//textarea | //option | //script"):
        field.drop_tree()
    return str(page.text_content())


def assert_is_an_answer(what: object, answer: HttpResponse) -> None:
    """The client raises what a view raises; a server would make 500 of it."""
    assert answer.status_code < 500, what
    assert REPEATED not in page_text(answer), what
