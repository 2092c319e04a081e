"""Setting and ending waste rules, and what tenants decide about them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from django.core.exceptions import ValidationError
from django.core.validators import validate_slug
from django.db import transaction
from django.db.models import QuerySet

from billing.models import (
    WasteAction,
    WasteChoice,
    WasteChoiceKind,
    WasteClosed,
    WasteFinding,
    WasteKind,
    WasteRule,
)
from billing.models.quota_terms import LONGEST_NAME, LONGEST_TEXT
from billing.waste.messages import SENTENCES
from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from portal.errors import CodedError
from portal.excerpt import quoted

LONGEST = 14 * 24
"""Whole hours of a rule at most."""
MOST_BUSY = 20
"""Percent of an hour that can count as idle, at most."""
SHORTEST_GRACE, GRACE, LONGEST_GRACE = 30, 120, 7 * 24 * 60
"""Minutes from the announcement to the end: at least, where none is said, and at most."""
MOST_NAMES = 100
"""Of each kind that a rule excludes."""


class WasteRuleError(CodedError):
    """A rule cannot be so; the message says why and what to do."""

    sentences = SENTENCES


@dataclass(frozen=True, slots=True, kw_only=True)
class WasteTerms:
    """Which jobs meet the rule and what is done; `busy_at_most` in percent. Cluster "": all."""

    hours: int
    kind: WasteKind = WasteKind.IDLE
    cluster: str = ""
    busy_at_most: int = 1
    except_queues: Sequence[str] = ()
    except_qoses: Sequence[str] = ()
    except_names: Sequence[str] = ()
    action: WasteAction = WasteAction.NOTIFY
    grace_minutes: int = GRACE
    watch: bool = True
    choice: WasteChoiceKind = WasteChoiceKind.OPT_OUT

    def check(self) -> None:
        """Raises WasteRuleError."""
        if not 1 <= self.hours <= LONGEST:
            raise WasteRuleError("waste-hours", number=self.hours, most=LONGEST)
        if not 0 <= self.busy_at_most <= MOST_BUSY:
            raise WasteRuleError("waste-busy", number=self.busy_at_most, most=MOST_BUSY)
        if not SHORTEST_GRACE <= self.grace_minutes <= LONGEST_GRACE:
            raise WasteRuleError(
                "waste-grace", number=self.grace_minutes, least=SHORTEST_GRACE, most=LONGEST_GRACE
            )
        for names in (self.except_queues, self.except_qoses, self.except_names):
            if len(names) > MOST_NAMES or not all(0 < len(name) <= LONGEST_TEXT for name in names):
                raise WasteRuleError("waste-text", most=MOST_NAMES)
        if self.cluster and not Cluster.objects.filter(name=self.cluster).exists():
            raise WasteRuleError("waste-cluster", cluster=quoted(self.cluster))


def columns_of(terms: WasteTerms) -> dict[str, object]:
    """As the rule's row has them: lists in order, each name once."""
    values = asdict(terms)
    for name in ("except_queues", "except_qoses", "except_names"):
        values[name] = sorted({*values[name]})
    return values


@transaction.atomic
def set_rule(*, name: str, terms: WasteTerms, moment: datetime) -> WasteRule:
    """Have the rule of this name be so; again with the same, nothing changes. By operators alone.

    A changed rule starts over: what it has announced ends no job. Raises WasteRuleError.
    """
    check_name(name)
    terms.check()
    values = columns_of(terms)
    row = WasteRule.objects.in_force().select_for_update().filter(name=name).first()
    if row is None:
        created: WasteRule = WasteRule.objects.create(name=name, created_at=moment, **values)
        return created
    if any(getattr(row, column) != value for column, value in values.items()):
        for column, value in values.items():
            setattr(row, column, value)
        row.save()
        close_findings(WasteFinding.objects.filter(rule=row), moment=moment)
    current: WasteRule = row
    return current


@transaction.atomic
def end_rule(*, name: str, moment: datetime) -> bool:
    """End it: what it has announced ends no job. False where there is none of this name (any more)."""
    row = WasteRule.objects.in_force().select_for_update().filter(name=name).first()
    if row is None:
        return False
    row.ended_at = moment
    row.save(update_fields=["ended_at"])
    close_findings(WasteFinding.objects.filter(rule=row), moment=moment)
    return True


@transaction.atomic
def choose(*, tenant: Tenant, name: str, takes_part: bool, moment: datetime) -> bool:
    """Have a rule that leaves it to tenants hold for this one, or not; whether anything changed. By its owners.

    Opting out takes back what was announced. Raises WasteRuleError.
    """
    rule = WasteRule.objects.in_force().filter(name=name).first()
    if rule is None:
        raise WasteRuleError("waste-none", name=quoted(name))
    if rule.choice == WasteChoiceKind.NONE:
        raise WasteRuleError("waste-choice", name=name)
    choices = WasteChoice.objects.filter(tenant=tenant, rule=rule)
    row = choices.select_for_update().first()
    before = row.takes_part if row else rule.choice == WasteChoiceKind.OPT_OUT
    if before == takes_part:
        return False
    WasteChoice.objects.update_or_create(
        tenant=tenant, rule=rule, defaults={"takes_part": takes_part, "chosen_at": moment}
    )
    if not takes_part:
        close_findings(WasteFinding.objects.filter(rule=rule, tenant=tenant), moment=moment)
    return True


def close_findings(rows: QuerySet[WasteFinding], *, moment: datetime) -> None:
    """Within the caller's transaction: nothing more is done about those that are open."""
    for row in rows.filter(closed_at=None).select_for_update():
        row.closed_at, row.closed_for, row.ran_until, row.error = moment, WasteClosed.CHANGED, moment, ""
        row.save(update_fields=["closed_at", "closed_for", "ran_until", "error"])


def list_rules() -> QuerySet[WasteRule]:
    """Those in force, by name."""
    rows: QuerySet[WasteRule] = WasteRule.objects.in_force().order_by("name", "pk")
    return rows


def load_choices(rules: Collection[WasteRule]) -> dict[tuple[int, int], bool]:
    """By rule and tenant what tenants have decided. One query."""
    rows = WasteChoice.objects.filter(rule__in=[rule.pk for rule in rules])
    return {(row.rule_id, row.tenant_id): row.takes_part for row in rows}


def holds_for(rule: WasteRule, tenant: int, choices: dict[tuple[int, int], bool]) -> bool:
    """Whether the rule holds for the tenant, as its owners have decided, or else as the rule says."""
    if rule.choice == WasteChoiceKind.NONE:
        return True
    return choices.get((rule.pk, tenant), rule.choice == WasteChoiceKind.OPT_OUT)


def check_name(name: str) -> None:
    """Raises WasteRuleError."""
    try:
        validate_slug(name)
    except ValidationError as error:
        raise WasteRuleError("waste-name") from error
    if len(name) > LONGEST_NAME or name != name.lower():
        raise WasteRuleError("waste-name")
