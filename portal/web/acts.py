"""What an operator does to one object: a form, a preview of what would change, then a confirmation of just that."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import date
from typing import Literal

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _

from billing.rules.money import Money
from portal.core import locks
from portal.core.audit import acting_as
from portal.core.tenants.access import Right, rights_of
from portal.days import NO_DAY, is_in_range
from portal.excerpt import quoted
from portal.sentences import sentence
from portal.web.access_decorators import answer
from portal.web.form_input import Option
from portal.web.page_frame import PageFrame
from portal.web.recent_proof import require_recent_proof

LONGEST = 500  # characters of a field
LONGEST_LINES = 1_000_000  # of one of lines, which is a file that is pasted
Values = Mapping[str, str]
Kind = Literal["text", "number", "date", "select", "check", "lines"]


class ActError(Exception):
    """What was entered cannot be done; the message says what to enter, in the language of the page."""


@dataclass(frozen=True, slots=True)
class Preview:
    """What would change. `key` tells two that read alike apart; without `possible` there is nothing to confirm."""

    sentences: Sequence[str]
    key: str = ""
    possible: bool = True

    def digest(self, values: Values) -> str:
        """Of what was seen, of what was entered."""
        text = json.dumps([*self.sentences, self.key, sorted(values.items())])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class Field:
    """One field of the form."""

    name: str
    label: str
    kind: Kind = "text"
    value: str = ""
    hint: str = ""
    required: bool = False
    options: Sequence[Option] = ()


@dataclass(frozen=True, kw_only=True)
class Act:
    """One act on one object. `preview` says what would change, or raises as the use case does; nothing stays of it."""

    title: str
    button: str
    lead: str = ""
    right: Right
    fields: Sequence[Field]
    preview: Callable[[Values], Preview | Sequence[str]]
    carry_out: Callable[[Values], str]
    refusals: tuple[type[Exception], ...]
    back: str
    back_label: str
    needs_proof: bool = False  # it moves money: whoever signed in some time ago proves again who they are
    in_transaction: bool = True  # False: it calls a scheduler, whose plan guards itself
    reason: str = "why"  # the field that is the reason in the history


def conduct(request: HttpRequest, frame: PageFrame, act: Act) -> HttpResponse:
    """The form; its preview; and once that is confirmed as it was seen, the act.

    Whoever lacks the right is told, and nothing is done. What changed since the preview is shown once more.
    """
    values, seen, error = _values(request, act), None, ""
    confirms = request.method == "POST" and request.POST.get("act") == "confirm"
    refusals: tuple[type[Exception], ...] = (*act.refusals, ActError)
    if request.method == "POST":
        if act.right not in rights_of(request.user):
            messages.error(request, _("Your role does not allow this. Nothing was changed."))
            return redirect(act.back)
        if confirms and act.needs_proof:
            require_recent_proof(request)
        try:
            with _one_by_one(request.path) if confirms and act.in_transaction else nullcontext():
                preview = act.preview(values)
                seen = preview if isinstance(preview, Preview) else Preview(preview)
                if confirms and seen.possible and seen.digest(values) == request.POST.get("seen"):
                    with acting_as(str(request.user), why=values.get(act.reason, "")):
                        messages.success(request, act.carry_out(values))
                    return redirect(act.back)
            if confirms:
                error = _("It changed since the preview, so nothing was done. Look at it again.")
        except refusals as refusal:
            seen, error = None, sentence(refusal)
    page = {
        "act": act,
        "fields": [(one, values[one.name], _options(one, values[one.name])) for one in act.fields],
        "preview": seen,
        "seen": seen.digest(values) if seen else "",
        "error": error,
        "may": act.right in rights_of(request.user),
    }
    return answer(request, frame, page, whole="operator/act.html")


@contextmanager
def _one_by_one(path: str) -> Iterator[None]:
    """Confirmed twice at once, as by a double click, the second one sees what the first one did."""
    with transaction.atomic():
        locks.hold_name(path)
        yield


def undone(act: Callable[[], object], *sentences: str) -> Sequence[str]:
    """The sentences, once the act was done and taken back: what it refuses, its preview refuses alike."""
    with transaction.atomic():
        act()
        transaction.set_rollback(True)
    return sentences


def amount(text: str, currency: str) -> Money:
    """What was typed as money. Raises ActError for what is none, and for parts of the smallest coin."""
    try:
        money = Money.of(text, currency)
    except ValueError as error:
        raise ActError(sentence(error)) from error
    if money != money.rounded():
        raise ActError(
            _("{text} is finer than {currency} is counted.").format(text=quoted(text), currency=currency)
        )
    return money


def day(text: str) -> date:
    """What was typed as a day. Raises ActError."""
    try:
        on = date.fromisoformat(text)
    except ValueError:
        on = date.min
    if not is_in_range(on):
        raise ActError(_(NO_DAY))
    return on


def _values(request: HttpRequest, act: Act) -> dict[str, str]:
    """What was sent; before that what the address says, else what the form begins with."""
    if request.method == "POST":
        return {one.name: _clean(one, request.POST.get(one.name, "")) for one in act.fields}
    return {one.name: _clean(one, request.GET.get(one.name, one.value)) for one in act.fields}


def _clean(field: Field, text: str) -> str:
    return text.replace("\0", "").strip()[: LONGEST_LINES if field.kind == "lines" else LONGEST]


def _options(of: Field, value: str) -> list[Option]:
    return [
        Option(value=option.value, label=option.label, selected=option.value == value)
        for option in of.options
    ]
