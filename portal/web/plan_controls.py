"""The controls of a plan's form: one for each field of a plan, with what people call it and what they can choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from functools import partial

from django.utils.translation import gettext as _

from billing.models import PeriodTotal, Resource
from billing.rules.meters import Meter
from billing.rules.tiers import Scale
from clusters.models import CapacityInterval, Cluster, DeclaredMeter
from portal.config_file.entries import Entry, Field, fields_of
from portal.config_file.plan_entries import KEYS_OF_MODEL, PlanEntry, PriceEntry
from portal.config_file.quotas import PlanQuotaEntry
from portal.web import budget_form
from portal.web.form_input import Option, options
from portal.web.plan_form import NO, PREFIX, YES, RawTable, is_chosen
from portal.web.plan_labels import (
    NOUNS,
    RESOURCES,
    SELECTOR_HINTS,
    SELECTOR_LABELS,
    TITLES,
    choices_of,
    label_of,
)

MAIN: Mapping[type[Entry], Sequence[str]] = {
    PriceEntry: ("meter", "gpu_model", "model", "unit_price", "package", "package_price"),
    PlanQuotaEntry: budget_form.FIRST,
}
"""What stands before the fold."""
ON_PAGE = frozenset({"public", "starting_credit"})
"""What the plan's page sets, whatever its versions say; blank in a form, it stays."""
OF_ONE_TENANT = ("tenant", "from", "until")
SUGGESTED = ("allowance", "days", "cluster", "gpu_model")


@dataclass(frozen=True, kw_only=True)
class Control:
    """One input. `kind`: text, number, date, select, checkbox, or choices for several of them."""

    name: str
    label: str
    kind: str
    value: str = ""
    hint: str = ""
    choices: Sequence[Option] = ()
    suggestions: str = ""  # the id of a list of values
    redraws: bool = False  # other controls depend on it

    @property
    def says_more(self) -> bool:
        """Whether it was filled in; of a choice, whether it is another than the usual one, which is the first."""
        return bool(self.value) or any(option.selected for option in self.choices[1:])


@dataclass(frozen=True, kw_only=True)
class Row:
    path: str  # price.0
    title: str  # "Price 1"
    main: Sequence[Control]
    more: Sequence[Control]  # below a fold
    lists: Sequence[Section]
    fold: str  # what is below it
    opens: bool  # whether something below the fold is filled in
    can_rise: bool


@dataclass(frozen=True, kw_only=True)
class Section:
    """A list of rows, and how one is added."""

    path: str  # price, price.0.tiers
    title: str
    add: str
    rows: Sequence[Row]


@dataclass(frozen=True, kw_only=True)
class PlanForm:
    controls: Sequence[Control]
    sections: Sequence[Section]
    suggestions: Mapping[str, Sequence[str]]  # by the id of the list


@dataclass(frozen=True, slots=True)
class Offers:
    """What the database has that a plan can name."""

    meters: Sequence[DeclaredMeter]
    gpu_models: Sequence[str]
    clusters: Sequence[str]


def offers() -> Offers:
    """Four queries."""
    return Offers(
        list(DeclaredMeter.objects.order_by("name")),
        gpu_models(),
        list(Cluster.objects.order_by("name").values_list("name", flat=True)),
    )


def gpu_models() -> list[str]:
    """Those that clusters have or that were used, by name. Two queries."""
    present = CapacityInterval.objects.filter(until=None).values_list("gpu_model", flat=True).distinct()
    used = PeriodTotal.objects.filter(resource=Resource.GPU).values_list("gpu_model", flat=True).distinct()
    return sorted({*present, *used} - {""})


def form_of(raw: RawTable, offered: Offers) -> PlanForm:
    """The form that shows what was typed, or what a version says."""
    allowances = [row["name"] for row in raw["allowance"] if row["name"]]
    return PlanForm(
        controls=_controls(PlanEntry, raw, PREFIX, offered),
        sections=[
            _section(field, raw[field.key], field.key, offered)
            for field in sorted(fields_of(PlanEntry), key=lambda field: field.key != "price")
            if field.entry
        ],
        suggestions={
            "gpu_model": offered.gpu_models,
            "cluster": offered.clusters,
            "allowance": allowances,
            "use": ("busy", "idle", "unknown"),
            "days": ("mon-fri", "sat, sun", "mon-sun"),
        },
    )


def _section(field: Field, rows: Sequence[RawTable], path: str, offered: Offers) -> Section:
    title, add = TITLES[field.key]
    kind = field.entry or Entry
    return Section(
        path=path,
        title=_(title),
        add=_(add),
        rows=[_row(field, kind, raw, f"{path}.{place}", place, offered) for place, raw in enumerate(rows)],
    )


def _row(field: Field, kind: type[Entry], raw: RawTable, path: str, place: int, offered: Offers) -> Row:
    controls = _controls(kind, raw, f"{PREFIX}.{path}", offered)
    names = MAIN.get(kind)
    order = {name: number for number, name in enumerate(names or ())}

    def is_main(control: Control) -> bool:
        last = control.name.rpartition(".")[2]
        return last in order if names else last not in OF_ONE_TENANT or field.key in {"tiers", "hours"}

    main = [control for control in controls if is_main(control)]
    more = [control for control in controls if not is_main(control)]
    lists = [
        _section(within, raw[within.key], f"{path}.{within.key}", offered)
        for within in fields_of(kind)
        if within.entry and _goes_with(kind, within.key, raw)
    ]
    return Row(
        path=path,
        title=f"{_(NOUNS[field.key])} {place + 1}",
        main=sorted(main, key=lambda control: order.get(control.name.rpartition(".")[2], 0)),
        more=more,
        lists=lists,
        fold=_("More options") if kind is PlanQuotaEntry else _("Selection and days"),
        opens=any(control.says_more for control in more),
        can_rise=place > 0 and field.key == "price",
    )


def _goes_with(kind: type[Entry], key: str, raw: RawTable) -> bool:
    """Whether the model that is chosen has such a field."""
    of_models = {name for names in KEYS_OF_MODEL.values() for name in names}
    if kind is not PriceEntry or key not in of_models:
        return True
    model = raw["model"] or Scale.PER_UNIT
    return model not in list(Scale) or key in KEYS_OF_MODEL[Scale(model)]


def _controls(kind: type[Entry], raw: RawTable, path: str, offered: Offers) -> list[Control]:
    controls: list[Control] = []
    for field in fields_of(kind):
        value = raw[field.key]
        if kind is PlanEntry and field.key in ON_PAGE:
            continue
        if isinstance(value, dict):
            controls += [_selector(name, text, f"{path}.{field.key}.{name}") for name, text in value.items()]
        elif field.entry is None and _goes_with(kind, field.key, raw):
            controls.append(_control(kind, field, value, f"{path}.{field.key}", offered))
    return controls


def _selector(name: str, value: str, path: str) -> Control:
    return Control(
        name=path,
        label=_(SELECTOR_LABELS[name]),
        kind="text",
        value=value,
        hint=_(SELECTOR_HINTS[name]) if name in SELECTOR_HINTS else _("Blank = all"),
        suggestions=name if name in {"gpu_model", "cluster", "use"} else "",
    )


def _control(kind: type[Entry], field: Field, value: object, path: str, offered: Offers) -> Control:
    label, hint = label_of(kind, field)
    base = partial(Control, name=path, label=label, hint=hint)
    if is_chosen(field):
        chosen = value if isinstance(value, list) else []
        return base(kind="choices", choices=_charged(chosen, offered))
    text = str(value)
    if field.key == "meter":
        return base(
            kind="select",
            value=text,
            choices=options(_counted(text, offered), text or Meter.GPU_HOUR),
        )
    if isinstance(field.kind, type) and issubclass(field.kind, Enum):
        return base(
            kind="select",
            choices=options(choices_of(field.kind), text or _first(field)),
            redraws=field.kind is Scale,
        )
    if field.kind is bool and field.default is None:  # what is not said is as it is for all
        answers = [("", _("No; of one tenant: as for all")), (YES, _("Yes")), (NO, _("No"))]
        return base(kind="select", choices=options(answers, text))
    if field.kind is bool:
        return base(kind="checkbox", value=text)
    kinds = {date: "date", Decimal: "number", int: "number"}
    suggestions = field.key if field.key in SUGGESTED else ""
    return base(kind=kinds.get(field.kind, "text"), value=text, suggestions=suggestions)


def _first(field: Field) -> str:
    return str(field.default.value) if isinstance(field.default, Enum) else ""


def _counted(value: str, offered: Offers) -> list[tuple[str, str]]:
    """Meters with their units; what was typed as TOML and is none of them stays a choice, so that it is refused."""
    named = [(str(meter.value), f"{meter.label} ({meter.unit})") for meter in Meter]
    named += [(row.name, f"{row.title} ({row.unit})") for row in offered.meters]
    return named if not value or value in dict(named) else [*named, (value, value)]


def _charged(chosen: Sequence[str], offered: Offers) -> list[Option]:
    named = [(name, _(RESOURCES[name])) for name in Resource.values]
    named += [(row.name, row.title) for row in offered.meters]
    named += [(name, name) for name in chosen if name and name not in dict(named)]
    return [Option(value=name, label=label, selected=name in chosen) for name, label in named]
