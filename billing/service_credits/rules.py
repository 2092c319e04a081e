"""Setting and ending failure rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from django.core.exceptions import ValidationError
from django.core.validators import validate_slug
from django.db import transaction
from django.db.models import QuerySet

from billing.models import CreditedPart, FailureRule
from billing.models.quota_terms import LONGEST_NAME, LONGEST_TEXT
from billing.service_credits.messages import SENTENCES
from clusters.gpu_causes import MEMORY_CAUSES, xid_cause
from clusters.models import Cluster
from portal.errors import CodedError
from portal.excerpt import quoted

HARDWARE_XIDS = (48, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120, 140)
"""Those that NVIDIA's catalog lays to the GPU, its memory, its links or its firmware; 48, 63, 64, 92, 94, 95 and 140
are ECC errors and what follows them."""
HARDWARE_CAUSES = frozenset({*map(xid_cause, HARDWARE_XIDS), *MEMORY_CAUSES})
APPLICATION_XIDS = frozenset({8, 11, 13, 31, 32, 43, 45, 68, 69})
"""Those whose first cause there is the program that ran."""
NODE_STATES = ("NODE_FAIL", "NodeLost")
"""Slurm's word for a job whose node failed, and Kubernetes' for such a pod."""
FAULTLESS_STATES = frozenset({"COMPLETED", "SUCCEEDED", "PENDING", "RUNNING", "SUSPENDED"})
"""Those of jobs that did not fail, in capitals: a slip of the hand would credit nearly all that was invoiced."""
HIGHEST_XID = 999
MOST = 100
"""XIDs, and states, of one rule."""


class FailureRuleError(CodedError):
    """A rule cannot be so; the message says why and what to do."""

    sentences = SENTENCES


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureTerms:
    """Which jobs are credited, and how much of which part in percent. Cluster "": all.

    `memory`: the counters of errors that their GPUs' memory could not correct count, too.
    """

    cluster: str = ""
    xids: Sequence[int] = HARDWARE_XIDS
    memory: bool = True
    states: Sequence[str] = NODE_STATES
    part: CreditedPart = CreditedPart.RUN
    percent: int = 100
    watch: bool = True

    def check(self) -> None:
        """Raises FailureRuleError."""
        if not self.xids and not self.states and not self.memory:
            raise FailureRuleError("failure-none")
        if len(self.xids) > MOST or not all(1 <= xid <= HIGHEST_XID for xid in self.xids):
            raise FailureRuleError("failure-xid", highest=HIGHEST_XID, most=MOST)
        for xid in self.xids:
            if xid in APPLICATION_XIDS:
                raise FailureRuleError("failure-application", xid=xid)
        if len(self.states) > MOST or not all(0 < len(state) <= LONGEST_TEXT for state in self.states):
            raise FailureRuleError("failure-state", most=MOST)
        for state in self.states:
            if state.upper() in FAULTLESS_STATES:
                raise FailureRuleError("failure-faultless", state=quoted(state))
        if self.states and self.part == CreditedPart.REST:
            raise FailureRuleError("failure-rest", state=quoted(self.states[0]))
        if not 1 <= self.percent <= 100:
            raise FailureRuleError("failure-percent", number=self.percent)
        if self.cluster and not Cluster.objects.filter(name=self.cluster).exists():
            raise FailureRuleError("failure-cluster", cluster=quoted(self.cluster))


def columns_of(terms: FailureTerms) -> dict[str, object]:
    """As the rule's row has them: lists in order, each entry once."""
    return asdict(terms) | {"xids": sorted({*terms.xids}), "states": sorted({*terms.states})}


@transaction.atomic
def set_rule(*, name: str, terms: FailureTerms, moment: datetime) -> FailureRule:
    """Have the rule of this name be so; again with the same, nothing changes. By operators alone.

    It holds for jobs that end from now on, a changed rule too. What was credited stays. Raises FailureRuleError.
    """
    check_name(name)
    terms.check()
    values = columns_of(terms)
    row = list_rules().select_for_update().filter(name=name).first()
    if row is None:
        created: FailureRule = FailureRule.objects.create(
            name=name, created_at=moment, applies_from=moment, **values
        )
        return created
    if any(getattr(row, column) != value for column, value in values.items()):
        for column, value in values.items():
            setattr(row, column, value)
        row.applies_from = moment
        row.save()
    current: FailureRule = row
    return current


@transaction.atomic
def end_rule(*, name: str, moment: datetime) -> bool:
    """End it: no more jobs meet it, and those that wait for their invoice are credited.

    False where there is none (any more).
    """
    ended = list_rules().select_for_update().filter(name=name).first()
    if ended is None:
        return False
    ended.ended_at = moment
    ended.save(update_fields=["ended_at"])
    return True


def list_rules() -> QuerySet[FailureRule]:
    """Those in force, by name."""
    return FailureRule.objects.filter(ended_at=None).order_by("name", "pk")


def check_name(name: str) -> None:
    """Raises FailureRuleError."""
    try:
        validate_slug(name)
    except ValidationError as error:
        raise FailureRuleError("failure-name") from error
    if len(name) > LONGEST_NAME or name != name.lower():
        raise FailureRuleError("failure-name")
