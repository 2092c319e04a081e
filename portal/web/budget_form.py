"""The form of a budget: its fields, filled with what there is, and what each can be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any

from django.http import QueryDict
from django.utils.translation import gettext as _

from billing.models import Quota, QuotaAction, QuotaCredits, QuotaEvery, QuotaMeasure
from billing.models.quota_terms import SCOPE
from billing.quotas.terms import DEFAULT_THRESHOLDS
from portal.config_file.entries import read
from portal.config_file.quotas import QuotaEntry
from portal.config_file.toml_table import Table
from portal.web.budget_checks import check_fields
from portal.web.form_input import check_number, options

FIRST = (
    "name",
    "measure",
    "amount",
    "every",
    "thresholds",
    "forecast_thresholds",
    "action",
    "watch",
    "grace_minutes",
)
"""Fields that most budgets need; the others are folded away."""
LONGEST = 500  # characters of a field
FIRST_NAME = "monthly"  # of the first budget, which most have; so its amount is all that has to be typed
LISTS = ("thresholds", "forecast_thresholds", "recipients")
TEXTS = (
    "name",
    "amount",
    "every",
    "measure",
    "unit",
    "project",
    *SCOPE,
    "repeat_every",
    "credits",
    "action",
    "reservation_cap",
    "borrows_from",
)
AMOUNTS = ("amount", "repeat_every", "reservation_cap")
FLAGS = ("with_paid", "watch", "carry_overdraft", "ends_older", "lends")
WHOLE = ("hours", "carry_over", "grace_minutes")
NAMES = (*TEXTS, *LISTS, *FLAGS, *WHOLE, "from", "until")
YES = "yes"


def typed_in(form: QueryDict) -> dict[str, str]:
    """By field what a form says."""
    return {name: form.get(name, "").replace("\0", "").strip()[:LONGEST] for name in NAMES}


def entry_of(fields: Mapping[str, str]) -> QuotaEntry:
    """What a file would say. Raises ValueError with a sentence for each field that is wrong."""
    values: dict[str, Any] = {name: fields[name] for name in TEXTS if fields[name]}
    for name in AMOUNTS:
        check_number(fields[name])
    for name in LISTS:
        parts = [check_number(part.strip()) for part in fields[name].split(",") if part.strip()]
        if parts or name == "thresholds":
            values[name] = parts
    for name in ("from", "until"):
        if fields[name]:
            values[name] = _day(fields[name])
    values |= {name: True for name in FLAGS if fields[name] == YES}
    values |= {name: _whole(name, fields[name]) for name in WHOLE if fields[name]}
    check_fields(values, _labels())
    table = Table("budget", values, [])
    entry = read(table, QuotaEntry)
    if entry is None:
        raise ValueError(" ".join(table.errors))
    return entry


def _whole(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        sentences = {
            "hours": _("Write the hours of a rolling window as a whole number, such as 168."),
            "carry_over": _("Write what is carried over as a whole number of percent, such as 20."),
            "grace_minutes": _("Write the grace as a whole number of minutes, such as 120."),
        }
        raise ValueError(sentences[name])
    return int(text[:9])


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError(_("Write a day like 2026-03-01.")) from None


def values_of(quota: Quota) -> dict[str, str]:
    """What the form shows of a budget that there is."""
    values = {name: str(getattr(quota, name) or "") for name in ("name", "every", "measure", "unit", *SCOPE)}
    values |= {"credits": quota.credits, "action": quota.action}
    values |= {name: YES if getattr(quota, name) else "" for name in FLAGS}
    values |= {"amount": f"{quota.amount.normalize():f}", "hours": str(quota.hours or "")}
    values |= {name: str(getattr(quota, name) or "") for name in ("carry_over", "grace_minutes")}
    values |= {"project": quota.project.name if quota.project else ""}
    values |= {"borrows_from": quota.borrows_from.name if quota.borrows_from else ""}
    values |= {"from": str(quota.first_day or ""), "until": str(quota.end_day or "")}
    for name in ("repeat_every", "reservation_cap"):
        amount = getattr(quota, name)
        values |= {name: "" if amount is None else f"{amount.normalize():f}"}
    lists: Mapping[str, Sequence[str]] = {
        "thresholds": quota.thresholds,
        "forecast_thresholds": quota.forecasts,
        "recipients": quota.recipients,
    }
    return values | {name: ", ".join(texts) for name, texts in lists.items()}


def form_of(fields: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The form in two parts; the second is open where something in it says more than the form does by itself."""
    first = sorted((one for one in fields if one["name"] in FIRST), key=lambda one: FIRST.index(one["name"]))
    more = [one for one in fields if one["name"] not in FIRST]
    is_filled = any(one["value"] not in ("", QuotaCredits.GROSS.value) for one in more)
    return {"parts": [("", first, True), (_("More options"), more, is_filled)]}


def fields_of(values: Mapping[str, str], *, name: str = "") -> list[dict[str, Any]]:
    """In the order of the form, with these values; where there are none, with what most begin with and this name."""
    first = not any(values.values())

    def one(key: str, label: str, hint: str = "", begin: str = "", **more: Any) -> dict[str, Any]:
        return {"name": key, "label": label, "hint": hint, "value": begin if first else values[key], **more}

    def flag(name: str, label: str, hint: str = "") -> dict[str, Any]:
        return one(name, label, hint, choices=options([("", _("No")), (YES, _("Yes"))], values[name]))

    measure, every = values["measure"] or QuotaMeasure.MONEY, values["every"] or QuotaEvery.MONTH
    return [
        one(
            "name",
            _("Name"),
            _("Lower-case letters, digits and hyphens, such as monthly-gpu"),
            name,
            required=True,
        ),
        one("measure", _("Counts"), choices=options(list_measures(), measure)),
        one("amount", _("Amount"), _("In your currency, GPU-hours or credits"), required=True, numeric=True),
        one("every", _("Period"), choices=options(list_periods(), every)),
        one("hours", _("Hours"), _("Of a rolling window, such as 168"), numeric=True),
        one("from", _("First day"), _("Of a fixed term"), kind="date"),
        one("until", _("Ends before"), _("Of a fixed term"), kind="date"),
        *(one(name, label, _("Blank = all")) for name, label in _scopes()),
        one(
            "thresholds",
            _("Notify at"),
            _("Shares or levels, such as 80%, 900.00"),
            ", ".join(DEFAULT_THRESHOLDS),
        ),
        one("forecast_thresholds", _("Notify at forecast"), _("Such as 100%; blank = never")),
        one("repeat_every", _("Repeat every"), _("Beyond the last threshold; blank = never"), numeric=True),
        one(
            "action",
            _("When all is used"),
            choices=options(list_actions(), values["action"] or QuotaAction.NOTIFY),
        ),
        *_ending(one, flag),
        flag("watch", _("Try it first"), _("Nothing is stopped; the history says what would have been")),
        one(
            "credits",
            _("Credits"),
            _("Of the whole tenant, in money"),
            choices=options(list_credits(), values["credits"] or QuotaCredits.GROSS),
        ),
        flag("with_paid", _("Count what you pay for others")),
        one(
            "carry_over",
            _("Carry over, percent"),
            _("Of the amount, what a period leaves to the next; blank = nothing"),
            numeric=True,
        ),
        flag("carry_overdraft", _("Carry overdrafts"), _("What a period overdraws the next one has less")),
        *_sharing(one, flag),
        one("recipients", _("Recipients"), _("E-mails of members; blank = owners and billing members")),
    ]


def label_of(name: str) -> tuple[str, str]:
    """What the form calls the field of this name, and the hint below it."""
    named = next(one for one in fields_of(dict.fromkeys(NAMES, "")) if one["name"] == name)
    return named["label"], named["hint"]


def _labels() -> dict[str, str]:
    return {one["name"]: one["label"] for one in fields_of(dict.fromkeys(NAMES, ""))}


def _sharing(one: Callable[..., dict[str, Any]], flag: Callable[..., dict[str, Any]]) -> list[dict[str, Any]]:
    """What one job may reserve of it, and what projects lend each other."""
    return [
        one(
            "reservation_cap",
            _("Reserve at most"),
            _("Of it, for one job; blank = all that the job may use"),
            numeric=True,
        ),
        flag("lends", _("Lend it"), _("A pool that budgets of projects borrow from, once their own is used")),
        one("borrows_from", _("Borrow from"), _("The name of a pool; of one whole project")),
    ]


def _ending(one: Callable[..., dict[str, Any]], flag: Callable[..., dict[str, Any]]) -> list[dict[str, Any]]:
    """Of running jobs that are ended."""
    return [
        one(
            "grace_minutes",
            _("Grace, minutes"),
            _("Until running jobs end; blank = 120"),
            numeric=True,
        ),
        flag("ends_older", _("End older jobs"), _("Also jobs that began before the budget was made")),
    ]


def list_actions() -> list[tuple[str, str]]:
    names = {
        QuotaAction.NOTIFY: _("Only notify"),
        QuotaAction.HOLD_JOBS: _("Waiting jobs are held"),
        QuotaAction.NO_GPU_JOBS: _("No new GPU job starts"),
        QuotaAction.NO_SUBMISSIONS: _("No new job can be submitted"),
        QuotaAction.END_JOBS: _("No new GPU job starts, and running jobs end after a grace"),
    }
    return [(value.value, label) for value, label in names.items()]


def list_credits() -> list[tuple[str, str]]:
    names = {
        QuotaCredits.GROSS: _("Do not count"),
        QuotaCredits.NET: _("Lower what is used"),
        QuotaCredits.PAID: _("Lower what is used, and top-ups do, too"),
    }
    return [(value.value, label) for value, label in names.items()]


def _scopes() -> list[tuple[str, str]]:
    return [
        ("project", _("Project")),
        ("user", _("User")),
        ("account", _("Account")),
        ("cluster", _("Cluster")),
        ("queue", _("Queue")),
        ("qos", _("QOS")),
        ("gpu_model", _("GPU model")),
    ]


def list_measures() -> list[tuple[str, str]]:
    names = {
        QuotaMeasure.MONEY: _("Money, before tax"),
        QuotaMeasure.GPU_HOURS: _("GPU-hours"),
        QuotaMeasure.CREDITS: _("Wallet credits"),
    }
    return [(value.value, label) for value, label in names.items()]


def list_periods() -> list[tuple[str, str]]:
    names = {
        QuotaEvery.MONTH: _("Month"),
        QuotaEvery.BILLING_PERIOD: _("Billing period"),
        QuotaEvery.DAY: _("Day"),
        QuotaEvery.WEEK: _("Week"),
        QuotaEvery.QUARTER: _("Quarter"),
        QuotaEvery.YEAR: _("Year"),
        QuotaEvery.ROLLING: _("Rolling window"),
        QuotaEvery.TERM: _("Fixed term"),
    }
    return [(value.value, label) for value, label in names.items()]
