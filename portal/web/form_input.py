"""What forms offer, and what somebody typed into one that was refused: its page shows it once more."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django.http import HttpRequest
from django.utils.translation import gettext as _

from portal.locales import GERMAN, current

KEY = "form_input"
LONGEST = 4000  # characters of a field


@dataclass(frozen=True, kw_only=True)
class Option:
    """One choice of a select."""

    value: str
    label: str
    selected: bool = False


def options(choices: Iterable[tuple[object, str]], selected: object) -> list[Option]:
    """Of values and their labels."""
    return [Option(value=str(value), label=label, selected=value == selected) for value, label in choices]


def check_number(text: str) -> str:
    """A number as it was typed. Raises ValueError for `15.000` by a reader of German, who means fifteen thousand."""
    if current() == GERMAN and re.fullmatch(r"[1-9]\d{0,2}\.\d{3}", text):
        small = text.rstrip("0").rstrip(".") if text.endswith("0") else f"{text}0"
        sentence = _("{text} can be two numbers: write {large} or {small}.")
        raise ValueError(sentence.format(text=text, large=text.replace(".", ""), small=small))
    return text


def keep(request: HttpRequest, *names: str) -> None:
    """Until a page asks for it, or another form is refused. Of ticked boxes of one name all values, with spaces."""
    fields = {name: " ".join(request.POST.getlist(name)).replace("\0", "")[:LONGEST] for name in names}
    request.session[KEY] = {"form": request.path, "fields": fields}


def last(request: HttpRequest, form: str) -> Mapping[str, str]:
    """By field what was typed into the form of this address, once; nothing where another one was refused."""
    if request.session.get(KEY, {}).get("form") != form:
        return {}
    fields: Mapping[str, str] = request.session.pop(KEY)["fields"]
    return fields
