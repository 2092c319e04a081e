"""A proof as programs read it: `prove --json` and the API."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from billing.catalog import meters
from billing.proof import checks
from billing.proof.sums import seconds_text
from billing.rules.meters import SECONDS_PER_HOUR

UNITS = {
    "gpu": "GPU-seconds",
    "cpu": "core-seconds",
    "memory": "GiB-seconds",
    "gpu-memory": "GiB-seconds of GPU memory",
    "billing": "billing-seconds",
}
"""Of what runs hold. Declared meters are proved in their own unit."""


def as_data(proof: checks.Proof) -> dict[str, Any]:
    """The sums by cluster and resource with their units, the quarantine and the other identities."""
    units = units_of(proof)
    return {
        "sums": [
            {
                "cluster": cluster,
                "resource": resource,
                "unit": units[resource],
                **{part: quantity_text(resource, value) for part, value in row.parts.items()},
                "unpriced": quantity_text(resource, row.unpriced),
                "difference": quantity_text(resource, row.difference),
                "closes": not row.difference,
            }
            for (cluster, resource), row in proof.sums.items()
        ],
        "quarantined": dict(proof.quarantined),
        "rerating": proof.rerating,
        "checks": [
            {"name": check.name, "holds": not check.broken, "broken": check.broken} for check in proof.checks
        ],
    }


def quantity_text(resource: str, seconds: Fraction) -> str:
    """Exact, in the unit in which the resource is proved: seconds of what runs hold, units of a declared meter."""
    return seconds_text(seconds if resource in UNITS else seconds / SECONDS_PER_HOUR)


def units_of(proof: checks.Proof) -> dict[str, str]:
    """By resource the unit in which it is proved."""
    return {**meters.units_of([resource for _, resource in proof.sums]), **UNITS}
