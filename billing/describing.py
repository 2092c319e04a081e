"""What an invoice calls a price."""

from __future__ import annotations

from billing.models import Price
from billing.models.plans import SELECTORS
from billing.rules.pricing import Meter


def describe(price: Price) -> str:
    """What an invoice calls a price: the meter, then what it selects."""
    words = [Meter(price.meter).label]
    named = dict(zip(SELECTORS, _selected(price), strict=True))
    if named["gpu_model"]:
        words[0] = f"{words[0]}, {_list(named['gpu_model'])}"
    labels = {"qos": "QOS", "queue": "queue", "mig_profile": "slices"}
    words += [
        f"{labels.get(what, what.replace('_', ' '))} {_list(values)}"
        for what, values in named.items()
        if values and what != "gpu_model"
    ]
    return ", ".join(words)


def _selected(price: Price) -> tuple[list[str], ...]:
    return (
        price.clusters,
        price.queues,
        price.qoses,
        price.priority_classes,
        price.gpu_models,
        price.mig_profiles,
        price.states,
    )


def _list(values: list[str]) -> str:
    return " / ".join(values)
