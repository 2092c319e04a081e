"""What capacity costs to run: entered by hand, by file or as CSV, each with the UTC day from which it holds."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from django.db import transaction

from billing.catalog.plans import LARGEST_PRICE
from billing.models import OperatingCost
from billing.rules.meters import MAX_PRICE_DECIMALS
from billing.rules.money import decimal_of, is_currency
from clusters.models import Cluster
from portal.excerpt import quoted

COLUMNS = ("gpu_model", "currency", "per_gpu_hour", "from")
FIRST_DAY = date(1970, 1, 1)


class OperatingCostError(Exception):
    """A cost cannot be so; `sentences` say why, each of one row."""

    def __init__(self, *sentences: str) -> None:
        self.sentences = sentences
        super().__init__("\n".join(sentences))


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one GPU-hour of capacity. An empty cluster or model means every one without its own."""

    cluster: str
    gpu_model: str
    currency: str
    amount: Decimal
    since: date


@dataclass(frozen=True, slots=True)
class Kept:
    """How many rows are new, have another amount now, and stood as they are."""

    new: int
    changed: int
    same: int


@transaction.atomic
def set_costs(costs: Iterable[Cost]) -> Kept:
    """Have all of these hold from their days on, or none; asked again, nothing changes.

    Another amount for the same day replaces it: a cost is nothing that anybody was billed. Raises
    OperatingCostError with a sentence for each that cannot be.
    """
    costs = list(costs)
    clusters = {cluster.name: cluster for cluster in Cluster.objects.all()}
    wrong = [sentence for cost in costs if (sentence := _refusal(cost, clusters))]
    seen = {(cost.cluster, cost.gpu_model, cost.currency, cost.since) for cost in costs}
    if len(seen) < len(costs):
        wrong.append("The same cluster, model, currency and day stand there twice; leave one out.")
    if wrong:
        raise OperatingCostError(*wrong)
    new = changed = 0
    for cost in costs:
        row, made = OperatingCost.objects.get_or_create(
            cluster=clusters.get(cost.cluster),
            gpu_model=cost.gpu_model,
            currency=cost.currency,
            valid_from=cost.since,
            defaults={"amount": cost.amount},
        )
        new += made
        if row.amount != cost.amount:
            row.amount = cost.amount
            row.save(update_fields=["amount"])
            changed += 1
    return Kept(new, changed, len(costs) - new - changed)


def read_csv(lines: Iterable[str]) -> list[Cost]:
    """Rows under a header that has COLUMNS and may have `cluster`. Raises OperatingCostError by row."""
    rows = csv.DictReader(lines, strict=True)
    try:
        header = [name.strip() for name in rows.fieldnames or ()]
        rows.fieldnames = header
        unknown = sorted({*header} - {*COLUMNS, "cluster"})
        missing = [name for name in COLUMNS if name not in header]
        if missing or unknown or len({*header}) < len(header):
            raise OperatingCostError(
                f"The first row names the columns: {', '.join(COLUMNS)}, and cluster where it matters; "
                f"it says {', '.join(header) or 'nothing'}."
            )
        found, wrong = [], []
        for row in rows:
            try:
                found.append(_cost(row))
            except ValueError as error:
                wrong.append(f"Row {rows.line_num}: {error}")
    except csv.Error as error:
        raise OperatingCostError(f"Row {rows.line_num}: this is no CSV: {error}.") from error
    if wrong:
        raise OperatingCostError(*wrong)
    return found


def _cost(row: dict[str, str | None]) -> Cost:
    if None in row or None in row.values():
        raise ValueError("it has not as many cells as the first row.")
    told = {name: (text or "").strip() for name, text in row.items()}
    try:
        amount = decimal_of(told["per_gpu_hour"])
    except ValueError:
        raise ValueError(f"{quoted(told['per_gpu_hour'])} is no amount; write it like 1.00.") from None
    try:
        since = date.fromisoformat(told["from"])
    except ValueError:
        raise ValueError(f"{quoted(told['from'])} is no day; write it like 2026-01-31.") from None
    return Cost(told.get("cluster", ""), told["gpu_model"], told["currency"], amount, since)


def _refusal(cost: Cost, clusters: dict[str, Cluster]) -> str:
    what = f"The operating cost of {cost.gpu_model or 'every model'} from {cost.since}"
    if cost.cluster and cost.cluster not in clusters:
        return f"{what} names the cluster {quoted(cost.cluster)}, which there is not."
    if not is_currency(cost.currency):
        return f"{what} is in {quoted(cost.currency)}; write a currency of ISO 4217, such as USD or EUR."
    if not cost.amount.is_finite() or not 0 <= cost.amount < LARGEST_PRICE:
        return f"{what} is {cost.amount}; it is from 0 and below {LARGEST_PRICE:,}."
    if -int(cost.amount.as_tuple().exponent) > MAX_PRICE_DECIMALS:  # finite: it has an exponent
        return f"{what} has more than {MAX_PRICE_DECIMALS} decimals."
    if cost.since < FIRST_DAY:
        return f"{what} begins too early: there are days from {FIRST_DAY} on."
    if len(cost.gpu_model) > 200 or not cost.gpu_model.isprintable():
        return f"{what} has a name of a model that no scheduler gives."
    return ""
