"""What forms offer, and what somebody typed into one that was refused: its page shows it once more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django.http import HttpRequest

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


def keep(request: HttpRequest, *names: str) -> None:
    """Until a page asks for it, or another form is refused."""
    fields = {name: request.POST.get(name, "").replace("\0", "")[:LONGEST] for name in names}
    request.session[KEY] = {"form": request.path, "fields": fields}


def last(request: HttpRequest, form: str) -> Mapping[str, str]:
    """By field what was typed into the form of this address, once; nothing where another one was refused."""
    if request.session.get(KEY, {}).get("form") != form:
        return {}
    fields: Mapping[str, str] = request.session.pop(KEY)["fields"]
    return fields
