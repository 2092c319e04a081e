"""Values in the history as people read them: words for codes, and moments and numbers as their language has them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime, tzinfo
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

from django.db import models
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.rules.formatting import grouped
from portal.core.audit.tracking import TRACKED
from portal.core.tenants.models import Role
from portal.web import format as say
from portal.web.team import role_name

MINOR = {
    "billing_automatictopup": ("threshold", "amount", "monthly_limit"),
    "billing_walletscheme": ("overdraft",),
}
"""By table the columns of money in minor units."""
CODES = {"card": gettext_noop("Card"), "sepa_debit": gettext_noop("Bank account")}  # of saved methods

WAYS = {
    "page": gettext_noop("page {name}"),
    "command": gettext_noop("command {name}"),
    "file": gettext_noop("file {name}"),
    "task": gettext_noop("task {name}"),
}
"""By the first word of what a change was made through."""


def way_text(through: str) -> str:
    """What a change was made through: `page /t/vision/team/`. An invitation's address is a secret of its reader."""
    kind, _space, name = through.partition(" ")
    name = re.sub(r"^/(invitations|pay)/[^/]+/", r"/\1/…/", name)
    if through == "payment link":
        return _("payment link")
    return _(WAYS[kind]).format(name=name) if kind in WAYS and name else through


def value_text(*, table: str, column: str, value: object, zone: tzinfo, unit: str) -> str | None:
    """How a page writes the value; None where it stands as it is. `unit`: of the row's wallet, "" for none.

    A code that the model does not know any more stands as it is.
    """
    field = _fields().get((table, column))
    if field is None or value is None or isinstance(value, bool):
        return None
    if column in MINOR.get(table, ()) and unit and isinstance(value, int):
        return say.minor(value, unit)
    if isinstance(field, models.DateTimeField):
        return _moment(value, zone)
    if isinstance(field, models.DateField):
        return say.day(date.fromisoformat(str(value)))
    if isinstance(field, models.DecimalField):
        return grouped(_short(str(value)))
    return _word(field, value)


def _word(field: models.Field[Any, Any], value: object) -> str | None:
    if field.name == "role" and value in Role.values:
        return role_name(Role(str(value)))
    if field.name == "kind" and value in CODES:
        return _(CODES[str(value)])
    label = dict(field.flatchoices).get(value) if field.choices else None
    return None if label is None else _(str(label))


def _moment(value: object, zone: tzinfo) -> str | None:
    try:
        at = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return say.moment(at, zone if isinstance(zone, ZoneInfo) else ZoneInfo("UTC")) if at.tzinfo else None


def _short(number: str) -> str:
    """Without the zeros that only the column has: `500`, `0.25`."""
    return number.rstrip("0").rstrip(".") if "." in number else number


@cache
def _fields() -> Mapping[tuple[str, str], models.Field[Any, Any]]:
    """By table and column."""
    return {
        (tracked.table, field.column or field.name): field
        for tracked in TRACKED
        for field in tracked.model._meta.concrete_fields
    }
