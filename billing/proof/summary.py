"""A proof as programs read it: `prove --json` and the API."""

from __future__ import annotations

from typing import Any

from billing.proof import checks

UNITS = {
    "gpu": "GPU-seconds",
    "cpu": "core-seconds",
    "memory": "GiB-seconds",
    "gpu-memory": "GiB-seconds of GPU memory",
    "billing": "billing-seconds",
}


def as_data(proof: checks.Proof) -> dict[str, Any]:
    """The sums by cluster and resource with their units, the quarantine and the other identities."""
    return {
        "sums": [
            {
                "cluster": cluster,
                "resource": resource,
                "unit": UNITS[resource],
                **{part: checks.seconds_text(value) for part, value in row.parts.items()},
                "unpriced": checks.seconds_text(row.unpriced),
                "difference": checks.seconds_text(row.difference),
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
