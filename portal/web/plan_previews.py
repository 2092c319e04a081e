"""What a draft of a plan changes and would have come to, as a worker computes it and the editor shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from hashlib import sha256
from typing import Any

from django.db import transaction

from billing.models import Plan, PlanVersion, Price, Settles
from billing.queries import plans as reading
from portal.config_file import drafts
from portal.config_file.export import entry_text, plan_text
from portal.config_file.plan_entries import PlanEntry
from portal.config_file.schema import ConfigError
from portal.ops.cli import BadInputError
from portal.web import plan_form
from portal.web.curves import Curve, curve_of
from portal.web.plan_difference import Compared, compared, in_force, of_same_day
from portal.web.plan_effect import Effect, effect_of, first_effect
from portal.web.previews import Progress

EFFECT_INPUTS = {"since": 10, "until": 10, "tenants": 1000}
"""The longest, in characters, of what chooses the months and tenants of an effect."""


@dataclass(frozen=True, kw_only=True)
class PlanPreview:
    """`errors` say why the draft cannot be published as it stands, or its effect not be computed."""

    errors: tuple[str, ...] = ()
    checked: str = ""  # of a draft that could be published: what tells it from any other
    begins: date | None = None
    curves: tuple[Curve, ...] = ()
    compared: Compared | None = None
    replaces: bool = False  # a version that begins on the same day
    effect: Effect | None = None


def entry_of(inputs: Mapping[str, Any]) -> PlanEntry:
    """The draft of the inputs: `text`, which is TOML, or else `form`, as it was typed. ConfigError where it is none."""
    if inputs["form"] is None:
        return drafts.one_plan(inputs["text"])
    return drafts.dated(plan_form.entry_of(plan_form.completed(inputs["form"])))


def digest_of(entry: PlanEntry) -> str:
    """What a preview shows: the draft, the version in force beside it, and the one that it replaces."""
    versions = [look(plan=entry.name, begins=entry.begins) for look in (in_force, of_same_day)]
    text = "\0".join([entry_text(entry), *(plan_text(version) if version else "" for version in versions)])
    return sha256(text.encode()).hexdigest()


def compute(inputs: Mapping[str, Any], moment: datetime, progress: Progress) -> PlanPreview:
    """Of a draft, with its effect on the months and tenants in `effect`, or on the last months where it has none."""
    try:
        entry = entry_of(inputs)
        checked = digest_of(entry)
        curves, difference = _written(entry)
    except ConfigError as error:
        return PlanPreview(errors=error.sentences)
    preview = PlanPreview(
        checked=checked,
        begins=entry.begins,
        curves=curves,
        compared=difference,
        replaces=of_same_day(plan=entry.name, begins=entry.begins) is not None,
    )
    month = reading.last_month(moment=moment)
    try:
        if inputs["effect"] is None:
            effect = first_effect(entry, month=month, progress=progress)
        else:
            since, until, tenants = (inputs["effect"][name] for name in EFFECT_INPUTS)
            effect = effect_of(
                entry, since=since, until=until, tenants=tenants, month=month, progress=progress
            )
    except (ConfigError, BadInputError) as error:
        return replace(preview, errors=error.sentences)
    return replace(preview, effect=effect)


def _written(entry: PlanEntry) -> tuple[tuple[Curve, ...], Compared]:
    """Of the version as it would be published: it is written and rolled back."""
    plan = Plan.objects.filter(name=entry.name).first()
    if plan is not None and entry.settles is None:
        entry = entry.replaced(settles=Settles(plan.settles))  # which stays as it is
    name = f"trial~{entry.name}"[:50]
    before = in_force(plan=entry.name, begins=entry.begins)
    with transaction.atomic():
        drafts.write([entry], name)
        version = PlanVersion.objects.select_related("plan").get(plan__name=name, effective_from=entry.begins)
        prices = Price.objects.filter(version=version)
        rows = prices.select_related("version__plan", "tenant", "allowance").order_by("position", "pk")
        curves = tuple(curve_of(price) for price in rows)
        difference = compared(before, version)
        transaction.set_rollback(True)
    return curves, difference
