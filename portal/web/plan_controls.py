"""The controls of a plan's form: one for each field of a plan, with what people call it and what they can choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from functools import partial

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.models import PeriodTotal, Resource, Settles
from billing.rules.hours import HoursZone
from billing.rules.meters import Meter
from billing.rules.tiers import Scale
from clusters.models import CapacityInterval, Cluster, DeclaredMeter
from portal.config_file.entries import Entry, Field, fields_of
from portal.config_file.plan_entries import KEYS_OF_MODEL, PlanEntry, PriceEntry
from portal.web.form_input import Option, options
from portal.web.plan_form import PREFIX, RawTable

LABELS: Mapping[str, tuple[str, str]] = {
    "plan.name": (gettext_noop("Name"), gettext_noop("Lowercase, digits and hyphens")),
    "plan.currency": (gettext_noop("Currency"), gettext_noop("USD, EUR, … or TOK for tokens")),
    "plan.settles": (gettext_noop("Paid by"), ""),
    "plan.charges": (gettext_noop("Charged"), gettext_noop("All other usage is free")),
    "plan.from": (gettext_noop("Valid from"), gettext_noop("First day of this version")),
    "price.meter": (gettext_noop("What is counted"), ""),
    "price.model": (gettext_noop("How it is priced"), ""),
    "price.unit_price": (gettext_noop("Price per unit"), ""),
    "price.package": (gettext_noop("Units in a package"), ""),
    "price.package_price": (gettext_noop("Price of a package"), ""),
    "price.allowance": (
        gettext_noop("Included hours first from"),
        gettext_noop("Name of an allowance below"),
    ),
    "price.tenant": (gettext_noop("Only for tenant"), gettext_noop("Blank = all")),
    "price.from": (gettext_noop("From"), gettext_noop("Blank = with the version")),
    "price.until": (gettext_noop("Until"), gettext_noop("The first day without it; blank = no end")),
    "price.correction": (gettext_noop("Reason of a correction"), gettext_noop("Of a price in use only")),
    "tier.up_to": (gettext_noop("Up to"), gettext_noop("Units; blank = the rest")),
    "tier.unit_price": (gettext_noop("Price per unit"), ""),
    "window.days": (gettext_noop("Days"), gettext_noop("mon-fri, or sat, sun")),
    "window.from": (gettext_noop("From"), gettext_noop("22:00")),
    "window.to": (gettext_noop("To"), gettext_noop("06:00 is of the next day")),
    "window.zone": (gettext_noop("Clock"), ""),
    "allowance.name": (gettext_noop("Name"), gettext_noop("Prices refer to it")),
    "allowance.hours": (gettext_noop("Units included each period"), ""),
    "allowance.rollover": (gettext_noop("Unused units roll over"), ""),
    "fee.name": (gettext_noop("Name"), gettext_noop("As on invoices")),
    "fee.amount": (gettext_noop("Amount each period"), ""),
    "fee.in_advance": (gettext_noop("Billed in advance"), ""),
    "commitment.amount": (gettext_noop("Least amount each period"), ""),
    "commitment.overage_factor": (
        gettext_noop("Overage factor"),
        gettext_noop("1.5 = what lies above costs half more"),
    ),
    "discount.name": (gettext_noop("Name"), gettext_noop("As on invoices")),
    "discount.percent": (gettext_noop("Per cent off"), ""),
    "discount.amount": (gettext_noop("Or amount off"), ""),
}
TERM_LABELS = {
    "tenant": (gettext_noop("Only for tenant"), gettext_noop("Blank = all")),
    "from": (gettext_noop("From"), gettext_noop("Blank = with the version")),
    "until": (gettext_noop("Until"), gettext_noop("The first day without it")),
}
"""Of fees, allowances, commitments and discounts alike."""
SELECTOR_LABELS = {
    "cluster": gettext_noop("Clusters"),
    "queue": gettext_noop("Queues"),
    "qos": gettext_noop("QOS"),
    "priority_class": gettext_noop("Priority classes"),
    "gpu_model": gettext_noop("GPU models"),
    "mig_profile": gettext_noop("MIG profiles"),
    "state": gettext_noop("Job states"),
    "use": gettext_noop("Use of the GPU"),
    "dimension": gettext_noop("Dimensions of a meter"),
}
SELECTOR_HINTS = {
    "use": gettext_noop("busy, idle, unknown"),
    "dimension": gettext_noop("model=large"),
    "gpu_model": gettext_noop("a100, h100; blank = all"),
}
TITLES = {
    "price": (gettext_noop("Prices"), gettext_noop("Add price")),
    "tiers": (gettext_noop("Tiers"), gettext_noop("Add tier")),
    "hours": (gettext_noop("Hours of the week"), gettext_noop("Add hours")),
    "allowance": (gettext_noop("Included hours"), gettext_noop("Add included hours")),
    "fee": (gettext_noop("Fees"), gettext_noop("Add fee")),
    "commitment": (gettext_noop("Commitment"), gettext_noop("Add commitment")),
    "discount": (gettext_noop("Discounts"), gettext_noop("Add discount")),
}
NOUNS = {
    "price": gettext_noop("Price"),
    "tiers": gettext_noop("Tier"),
    "hours": gettext_noop("Hours"),
    "allowance": gettext_noop("Included hours"),
    "fee": gettext_noop("Fee"),
    "commitment": gettext_noop("Commitment"),
    "discount": gettext_noop("Discount"),
}
CHOICES: Mapping[type[Enum], Mapping[str, str]] = {
    Settles: {
        "invoice": gettext_noop("Invoice"),
        "wallet": gettext_noop("Wallet, as it is used"),
        "wallet-first": gettext_noop("Wallet first, then invoice"),
    },
    Scale: {
        "per_unit": gettext_noop("The same for every unit"),
        "graduated": gettext_noop("Graduated: each tier at its own price"),
        "volume": gettext_noop("Volume: all of it at the price of its tier"),
        "package": gettext_noop("Packages"),
    },
    HoursZone: {"tenant": gettext_noop("The tenant’s"), "cluster": gettext_noop("The cluster’s")},
}
RESOURCES = {
    "gpu": gettext_noop("GPU time"),
    "cpu": gettext_noop("CPU time"),
    "memory": gettext_noop("Memory time"),
    "gpu-memory": gettext_noop("GPU memory time"),
    "billing": gettext_noop("Slurm billing"),
}
MAIN: Mapping[type[Entry], Sequence[str]] = {
    PriceEntry: ("meter", "gpu_model", "model", "unit_price", "package", "package_price")
}
"""What stands before the fold."""
OF_ONE_TENANT = ("tenant", "from", "until")


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


@dataclass(frozen=True, kw_only=True)
class Row:
    path: str  # price.0
    title: str  # "Price 1"
    main: Sequence[Control]
    more: Sequence[Control]  # below a fold
    lists: Sequence[Section]
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
        opens=any(control.value for control in more),
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
    base = partial(Control, name=path, label=_(label), hint=_(hint) if hint else "")
    if field.key == "charges":
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
            choices=options(
                [(name, _(text)) for name, text in CHOICES[field.kind].items()], text or _first(field)
            ),
            redraws=field.kind is Scale,
        )
    if field.kind is bool:
        return base(kind="checkbox", value=text)
    kinds = {date: "date", Decimal: "number"}
    suggestions = field.key if field.key in {"allowance", "days"} else ""
    return base(kind=kinds.get(field.kind, "text"), value=text, suggestions=suggestions)


def label_of(kind: type[Entry], field: Field) -> tuple[str, str]:
    """What people call the field, and what helps to fill it in."""
    label = LABELS.get(f"{kind.noun}.{field.key}") or TERM_LABELS.get(field.key)
    return label or (field.key.replace("_", " ").capitalize(), "")


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
