"""The form of a waste rule: its fields, filled with what there is, and what each can be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import QueryDict
from django.utils.translation import gettext as _

from billing.models import WasteAction, WasteChoiceKind, WasteKind, WasteRule
from billing.models.quota_terms import LONGEST_TEXT
from billing.waste.rules import GRACE, MOST_NAMES
from portal.config_file.entries import read
from portal.config_file.toml_table import Table
from portal.config_file.waste import WasteRuleEntry
from portal.web.form_input import options

TEXTS = ("name", "kind", "cluster", "action", "choice")
NUMBERS = ("hours", "busy_at_most", "grace_minutes")
LISTS = ("except_queues", "except_qoses", "except_names")
NAMES = (*TEXTS, *NUMBERS, *LISTS, "watch")
LONGEST = MOST_NAMES * (LONGEST_TEXT + 2)  # characters of a field: no exception is cut off
ACTS = "no"  # of `watch`


def typed_in(form: QueryDict) -> dict[str, str]:
    """By field what a form says."""
    return {name: form.get(name, "").replace("\0", "").strip()[:LONGEST] for name in NAMES}


def entry_of(fields: Mapping[str, str]) -> WasteRuleEntry:
    """What a file would say. Raises ValueError with the sentences that a file would get."""
    values: dict[str, Any] = {name: fields[name] for name in TEXTS if fields[name]}
    for name in NUMBERS:
        if text := fields[name]:
            values[name] = int(text[:9]) if text.isascii() and text.isdecimal() else text
    for name in LISTS:
        if names := [part.strip() for part in fields[name].split(",") if part.strip()]:
            values[name] = names
    values["watch"] = fields["watch"] != ACTS
    table = Table("waste_rule", values, [])
    entry = read(table, WasteRuleEntry)
    if entry is None:
        raise ValueError(" ".join(table.errors))
    return entry


def values_of(row: WasteRule) -> dict[str, str]:
    """What the form shows of a rule."""
    lists = {name: ", ".join(getattr(row, name)) for name in LISTS}
    return (
        {name: str(getattr(row, name)) for name in (*TEXTS, *NUMBERS)}
        | lists
        | {"watch": "" if row.watch else ACTS}
    )


def form(values: Mapping[str, str]) -> list[dict[str, Any]]:
    def one(name: str, label: str, hint: str = "", **more: Any) -> dict[str, Any]:
        return {"name": name, "label": label, "hint": hint, "value": values[name], **more}

    def select(name: str, label: str, labels: Mapping[str, str], hint: str = "") -> dict[str, Any]:
        return one(name, label, hint, choices=options(list(labels.items()), values[name]))

    return [
        one(
            "name",
            _("Name"),
            _("Lower-case letters, digits and hyphens, such as idle-4-hours"),
            required=True,
        ),
        select(
            "kind",
            _("Which jobs"),
            {
                WasteKind.IDLE: _("No use of their GPUs"),
                WasteKind.TAIL: _("Worked before, no use now"),
                WasteKind.UNUSED: _("No use since they started"),
            },
        ),
        one("hours", _("Hours"), _("Whole hours in a row without use"), required=True, numeric=True),
        one("busy_at_most", _("Idle up to"), _("Percent of an hour; blank = 1"), numeric=True),
        one("cluster", _("Cluster"), _("Blank = all")),
        one("except_queues", _("Except queues"), _("Separated by commas")),
        one("except_qoses", _("Except QOS"), _("Separated by commas")),
        one("except_names", _("Except job names"), _("Separated by commas; * is anything: jupyter*")),
        select(
            "action",
            _("Action"),
            {
                WasteAction.NOTIFY: _("Only notify"),
                WasteAction.REQUEUE: _("Requeue, held"),
                WasteAction.CANCEL: _("Cancel"),
            },
        ),
        one(
            "grace_minutes",
            _("Grace"),
            _("Minutes until the job is ended; blank = %(minutes)d") % {"minutes": GRACE},
            numeric=True,
        ),
        select(
            "choice",
            _("Tenants"),
            {
                WasteChoiceKind.OPT_OUT: _("May opt out"),
                WasteChoiceKind.OPT_IN: _("Only those that opt in"),
                WasteChoiceKind.NONE: _("No choice"),
            },
        ),
        select(
            "watch",
            _("Mode"),
            {"": _("Watch: only write down what it would do"), ACTS: _("Act: notify and end jobs")},
        ),
    ]
