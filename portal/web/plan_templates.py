"""Plans to begin with: what is usual, for the GPU models that there are, at list prices to be changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext_noop

from billing.rules.money import TOKENS
from portal.config_file.entries import Entry
from portal.config_file.plan_entries import (
    AllowanceEntry,
    FeeEntry,
    PlanEntry,
    PriceEntry,
    TierEntry,
    WindowEntry,
)
from portal.web.plan_form import RawTable, blank_row

LIST_PRICES = (
    ("h100", "3.75"),
    ("a100-40", "1.65"),
    ("a100-pcie-40", "1.65"),
    ("a100-sxm4-40", "1.65"),
    ("a100", "2.21"),
    ("v100", "2.48"),
    ("l4", "0.81"),
    ("t4", "0.35"),
    ("4090", "2.00"),
)
"""US dollars for a GPU-hour on demand, by what a model's name has in it; the first that fits."""


def list_price(model: str) -> str:
    """`2.21`; "" of a model that we know none of."""
    name = model.lower().replace(" ", "-").replace("_", "-")
    parts = name.split("-")
    fits = (price for part, price in LIST_PRICES if (part in parts if len(part) < 3 else part in name))
    return next(fits, "")


def _of(kind: type[Entry], **values: Any) -> RawTable:
    raw = blank_row(kind)
    where = values.pop("where", None)
    if where is not None:
        raw["where"] |= where
    return raw | values


def _price(gpu_model: str, amount: str, **more: Any) -> RawTable:
    where = {"gpu_model": gpu_model} | more.pop("where", {})
    return _of(PriceEntry, meter="gpu-hour", where=where, unit_price=amount, **more)


def _times(amount: str, factor: str) -> str:
    return f"{(Decimal(amount) * Decimal(factor)).quantize(Decimal('0.01'))}" if amount else ""


def _per_hour(models: Sequence[str]) -> RawTable:
    return {"price": [_price(model, list_price(model)) for model in models]}


def _tiers(models: Sequence[str]) -> RawTable:
    prices = []
    for model in models:
        amount = list_price(model)
        tiers = [
            _of(TierEntry, up_to="1000", unit_price=amount),
            _of(TierEntry, unit_price=_times(amount, "0.8")),
        ]
        prices.append(_price(model, "", model="graduated", tiers=tiers))
    return {"price": prices}


def _nights(models: Sequence[str]) -> RawTable:
    windows = [
        _of(WindowEntry, days="mon-sun", **{"from": "20:00", "to": "08:00"}),  # also of Sunday to Monday
        _of(WindowEntry, days="sat-sun", **{"from": "00:00", "to": "24:00"}),
    ]
    nights = [_price(model, _times(list_price(model), "0.7"), hours=[*windows]) for model in models]
    return {"price": [*_per_hour(models)["price"], *nights]}


def _preemptible(models: Sequence[str]) -> RawTable:
    lower = [
        _price(model, _times(list_price(model), "0.35"), where={"qos": "preemptible"}) for model in models
    ]
    return {"price": [*_per_hour(models)["price"], *lower]}


def _included(models: Sequence[str]) -> RawTable:
    name = "Included hours"
    return {
        "price": [_price(model, list_price(model), allowance=name) for model in models],
        "allowance": [_of(AllowanceEntry, name=name, hours="100")],
        "fee": [_of(FeeEntry, name="Base fee", amount="150", in_advance="yes")],
    }


def _tokens(models: Sequence[str]) -> RawTable:
    return {
        "currency": TOKENS,
        "settles": "wallet",
        "price": [_price(model, "1") for model in models],
    }


TEMPLATES: Mapping[str, tuple[str, str, Callable[[Sequence[str]], RawTable]]] = {
    "hourly": (
        gettext_noop("Per GPU-hour"),
        gettext_noop("One price for each GPU model."),
        _per_hour,
    ),
    "tiers": (
        gettext_noop("Cheaper from 1,000 hours on"),
        gettext_noop("Graduated: what lies above 1,000 GPU-hours of a period costs 20 % less."),
        _tiers,
    ),
    "nights": (
        gettext_noop("Nights and weekends"),
        gettext_noop("30 % less from 20:00 to 08:00 and on weekends."),
        _nights,
    ),
    "preemptible": (
        gettext_noop("On demand and preemptible"),
        gettext_noop("65 % less for jobs of the QOS preemptible."),
        _preemptible,
    ),
    "included": (
        gettext_noop("Base fee with included hours"),
        gettext_noop("150 a period with 100 GPU-hours; what lies above is charged by the hour."),
        _included,
    ),
    "tokens": (
        gettext_noop("Tokens from a wallet"),
        gettext_noop("One token a GPU-hour, until you weigh the models."),
        _tokens,
    ),
}


def started(template: str, models: Sequence[str], *, begins: date) -> RawTable:
    """The form of a new plan by this template, for these GPU models; without any, one price for all."""
    _label, _text, rows = TEMPLATES[template]
    return (
        blank_row(PlanEntry)
        | {"name": "standard", "currency": "USD", "charges": ["gpu"], "from": begins.isoformat()}
        | rows(models or [""])
    )
