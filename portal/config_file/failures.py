"""Failure rules in a configuration file, and in the bodies of the API: which jobs are credited for failed hardware."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar

from billing.models import CreditedPart, FailureRule
from billing.models.quota_terms import LONGEST_NAME, LONGEST_TEXT
from billing.service_credits.rules import HARDWARE_XIDS, HIGHEST_XID, NODE_STATES, FailureTerms, set_rule
from portal.config_file.entries import Entry, Rule, key


class FailureRuleEntry(Entry, frozen=True, kw_only=True):
    noun: ClassVar[str] = "failure_rule"
    named_by: ClassVar[str] = "name"
    name: Annotated[str, Rule(longest=LONGEST_NAME)]
    cluster: Annotated[str, Rule(longest=LONGEST_TEXT)] = ""
    xids: Annotated[list[int], Rule(lowest=1, highest=HIGHEST_XID)] = key(default_factory=list)
    memory: bool = False
    states: list[str] = key(default_factory=list)
    part: CreditedPart = CreditedPart.RUN
    percent: Annotated[int, Rule(lowest=1, highest=100)] = 100
    watch: bool = True

    @property
    def identity(self) -> str:
        return self.name

    def terms(self) -> FailureTerms:
        """As the use case takes it: where no kind of failure is said, all that is the hardware's."""
        values = {name: getattr(self, name) for name in TERMS}
        if not self.xids and not self.states and not self.memory:
            values["xids"], values["memory"] = HARDWARE_XIDS, True
            values["states"] = NODE_STATES if self.part == CreditedPart.RUN else ()
        return FailureTerms(**values)

    def write(self, *, moment: datetime) -> FailureRule:
        """Have the rule be so; applied again, nothing changes. Raises FailureRuleError."""
        return set_rule(name=self.name, terms=self.terms(), moment=moment)


TERMS = tuple(FailureTerms.__dataclass_fields__)


def described(row: FailureRule) -> Mapping[str, Any]:
    """What a list of changes says of it, by its keys in a file."""
    return {name: getattr(row, name) for name in TERMS} | {"ended": row.ended_at is not None}
