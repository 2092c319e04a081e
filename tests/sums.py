"""Sums of a declared meter in stories: what Op declares, what the gateway pushes, and what comes of it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from billing.proof import checks, summary
from billing.rating import pushed_usage
from clusters import meters
from clusters.models import Cluster, DeclaredMeter
from portal.core.tenants.models import Tenant
from tests.builders import LONG_AGO, a_cluster, a_plan, a_tenant, at
from tests.stories import invoice_of

NOW = at("2026-04-02 12:00")
INPUT = {"dimension": ["direction=input"]}
OUTPUT = {"dimension": ["direction=output"]}
PRICES: tuple[Any, ...] = (
    ("gpu-hour", {}, "2.00", LONG_AGO),
    ("llm-tokens", INPUT, "0.60", LONG_AGO),
    ("llm-tokens", OUTPUT, "2.40", LONG_AGO),
)


def tokens(**changes: Any) -> DeclaredMeter:
    """Million tokens, by model and direction."""
    values = {"title": "LLM tokens", "unit": "million tokens", "counted": "tokens", "per_unit": 1_000_000}
    return meters.declare_meter(
        **{"name": "llm-tokens", **values, "dimensions": ["model", "direction"], **changes}
    )


def a_sum(
    key: str,
    quantity: str | int,
    start: str = "2026-03-02T10",
    /,
    *,
    time: str = "2026-04-01T00:00:00Z",
    hours: int = 1,
    **changes: Any,
) -> dict[str, Any]:
    """Input tokens of the large model in an hour, by Ben."""
    end = f"{start[:11]}{int(start[11:13]) + hours:02}:00:00Z"
    data = {
        "meter": "llm-tokens",
        "account": "vision",
        "user": "ben",
        "quantity": quantity,
        "start": f"{start}:00:00Z",
        "end": end,
        "dimensions": {"model": "large", "direction": "input"},
        **changes,
    }
    return {
        "specversion": "1.0",
        "id": key,
        "source": "https://gateway.example/usage",
        "type": "org.clustertab.usage.sum",
        "time": time,
        "data": data,
    }


def a_gateway() -> Cluster:
    """What serves the models: a cluster of pushed usage, complete up to NOW."""
    return a_cluster("gateway", kind="push", complete_through="2026-04-02 12:00")


def a_user_of_tokens(gateway: Cluster, **fields: Any) -> Tenant:
    """On a plan that charges GPUs and tokens; the account `vision` of the gateway is its own."""
    tokens()
    plan = a_plan("ai", prices=PRICES, charges=("gpu", "llm-tokens"))
    return a_tenant("vision-lab", plan=plan, accounts=[(gateway, "vision")], **fields)


def push(cluster: Cluster, *values: object) -> pushed_usage.Pushed:
    return pushed_usage.push(cluster=cluster, values=list(values), moment=NOW)


def became(pushed: pushed_usage.Pushed) -> list[str]:
    return [answer.became.value for answer in pushed.answers]


def lines_of(tenant: Tenant, month: str = "2026-03") -> list[tuple[str, Fraction, str, int]]:
    """Description, units, unit and minor units of its invoice's lines."""
    invoice = invoice_of(tenant, month)
    return [
        (line.description, Fraction(int(line.seconds_num), line.seconds_den * 3600), line.unit, line.amount)
        for line in invoice.lines.order_by("position")
    ]


def sums_of(meter: str) -> dict[str, str]:
    """The proof's sums of a meter in its own unit."""
    proof = summary.as_data(checks.prove())
    (row,) = [row for row in proof["sums"] if row["resource"] == meter]
    assert row["closes"]
    return {part: row[part] for part in ("unit", "allocated", "billed", "pending", "waived", "unassigned")}
