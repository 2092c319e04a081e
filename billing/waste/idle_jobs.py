"""Which running jobs meet which rules now, by stored hours of telemetry: what is not known is not idle."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

from billing.models import WasteFinding, WasteRule
from billing.queries.costs import cost, per_currency
from billing.quotas.counters import UNSEEN, rows
from billing.quotas.valued_use import load_price_tags
from billing.rules.money import Money, rounded_text
from billing.waste.rules import holds_for, load_choices
from portal.sql_files import Statements

sql = Statements(__file__, "findings.sql")
STALE = timedelta(hours=3)
"""Telemetry that ends longer ago tells nothing of now: an hour is stored some 15 minutes after it is over."""
PLACES = 12
"""Of the money that an hour costs, as it is stored."""


@dataclass(frozen=True, slots=True)
class IdleJob:
    """A running job that meets a rule. Whole hours in [since, through) are known to be idle."""

    rule: int
    tenant: int
    record: int
    key: str
    job_id: str
    name: str
    user: str
    cluster: str
    account: str
    gpus: int
    share_num: int
    share_den: int
    gpu_model: str
    queue: str
    qos: str
    since: datetime
    through: datetime
    limit_at: datetime | None

    @property
    def place(self) -> tuple[int, int]:
        """By which its finding is known."""
        return self.rule, self.record


def load_idle(
    rules: Sequence[WasteRule], *, moment: datetime, records: Collection[int] | None = None
) -> list[IdleJob]:
    """Those that meet a rule, whoever is excluded; of these records alone, where they are given. One query."""
    if not rules:
        return []
    values = {
        "rules": [rule.pk or 0 for rule in rules],
        "clusters": [rule.cluster for rule in rules],
        "kinds": [rule.kind for rule in rules],
        "hours": [rule.hours for rule in rules],
        "busy": [rule.busy_at_most for rule in rules],
        "records": None if records is None else list(records),
        "known_from": int((moment - STALE).timestamp()),
        "unseen": UNSEEN,
    }
    listed: list[IdleJob] = []
    for row in rows(sql.IDLE, values):
        since, through, limit = row[-3:]
        instants = [_instant(since), _instant(through), _instant(limit) if limit else None]
        values_of_job: list[Any] = [*row[:-3], *instants]
        listed.append(IdleJob(*values_of_job))
    return listed


def without_excluded(jobs: Sequence[IdleJob], rules: Sequence[WasteRule]) -> list[IdleJob]:
    """Those that no rule excludes, of tenants for whom it holds. One query."""
    by_id = {rule.pk or 0: rule for rule in rules}
    choices = load_choices([rule for rule in rules if rule.pk])
    return [
        job
        for job in jobs
        if not is_excluded(job, by_id[job.rule]) and holds_for(by_id[job.rule], job.tenant, choices)
    ]


def is_excluded(job: IdleJob, rule: WasteRule) -> bool:
    """By its queue, one of several too, its QOS or its name."""
    queues = {*job.queue.split(","), job.queue}
    return (
        bool(queues & {*rule.except_queues})
        or job.qos in rule.except_qoses
        or any(_matches(name, job.name) for name in rule.except_names)
    )


@dataclass(frozen=True, slots=True)
class Present:
    """How the job of a finding is now; `worked`: when the last hour began in which it did."""

    ended: datetime | None
    through: datetime | None
    worked: datetime | None


def load_present(findings: Sequence[WasteFinding], *, moment: datetime) -> dict[int, Present]:
    """By finding. One query; none where there is no finding."""
    if not findings:
        return {}
    values = {
        "findings": [row.pk for row in findings],
        "tenants": [row.tenant_id for row in findings],
        "records": [row.record_id for row in findings],
        "busy": [row.rule.busy_at_most for row in findings],
        "second": int(moment.timestamp()),
    }
    return {
        finding: Present(*(None if second is None else _instant(second) for second in seconds))
        for finding, *seconds in rows(sql.PRESENT, values)
    }


def load_hour_costs(records: Collection[int]) -> dict[int, Money]:
    """By record what an hour of it costs at its present prices, of the first unit. Two queries; none without records.

    Nothing where it is not charged, or in several currencies.
    """
    if not records:
        return {}
    listed = rows(sql.COSTS, {"records": list(records)})
    tags = load_price_tags(price for _record, price, *_ in listed)
    amounts: dict[int, list[Money]] = {}
    for record, price, parts, an_hour in listed:
        if price in tags:
            amounts.setdefault(record, []).append(cost(tags[price].tag, Fraction(int(an_hour), parts)))
    sums = {record: per_currency(parts) for record, parts in amounts.items()}
    return {record: one[0] for record, one in sums.items() if len(one) == 1}


def hour_cost_columns(money: Money | None) -> dict[str, Any]:
    """As a finding has it: an estimate, so its last places may be rounded."""
    if money is None:
        return {"hour_cost": None, "currency": ""}
    return {"hour_cost": Decimal(rounded_text(money.amount, PLACES)), "currency": money.currency}


def by_place(jobs: Sequence[IdleJob]) -> Mapping[tuple[int, int], IdleJob]:
    return {job.place: job for job in jobs}


def _matches(pattern: str, name: str) -> bool:
    """Each part at its first place behind the one before, which no later place could better: no time for going back."""
    first, *parts = map(re.escape, pattern.split("*"))
    if not parts:
        return pattern == name
    *middle, last = parts
    atoms = "".join(f"(?>.*?{part})" for part in middle if part)
    return re.fullmatch(f"{first}{atoms}.*{last}", name, re.DOTALL) is not None


def _instant(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)
