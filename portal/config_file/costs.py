"""What a configuration file says of the cost of running GPUs."""

from __future__ import annotations

from collections.abc import Iterable

from billing.models import OperatingCost
from billing.reports import operating_costs
from billing.reports.operating_costs import Cost
from portal.config_file.toml_table import Table


def read(table: Table) -> Cost | None:
    """One [[operating_cost]]; None where something of it is wrong."""
    cluster, model = table.text("cluster", longest=100), table.text("gpu_model", longest=200)
    currency = table.text("currency", required=True)
    amount = table.decimal("per_gpu_hour", required=True)
    since = table.day("from")
    if "from" not in table.data:
        table.wrong("from", "is missing; write the UTC day on which it begins.")
    table.done()
    if currency is None or amount is None or since is None:
        return None
    return Cost(cluster or "", model or "", currency, amount, since)


def write(costs: Iterable[Cost]) -> None:
    """Raises OperatingCostError, with a sentence for each that cannot be."""
    operating_costs.set_costs(costs)


def told() -> Iterable[tuple[int, str, dict[str, str]]]:
    """Of each cost its key, its name for people, and what it says."""
    for row in OperatingCost.objects.select_related("cluster").order_by("pk"):
        where = row.cluster.name if row.cluster else "every cluster"
        name = f"operating cost of {row.gpu_model or 'every model'} in {where} from {row.valid_from}"
        yield row.pk, name, {"per GPU-hour": f"{row.amount.normalize():f} {row.currency}"}
