"""Waste rules in a configuration file, and in the bodies of the API: which idle jobs are told of, or ended."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar

from billing.models import WasteAction, WasteChoiceKind, WasteKind, WasteRule
from billing.models.quota_terms import LONGEST_NAME, LONGEST_TEXT
from billing.waste.rules import (
    GRACE,
    LONGEST,
    LONGEST_GRACE,
    MOST_BUSY,
    SHORTEST_GRACE,
    WasteTerms,
    set_rule,
)
from portal.config_file.entries import Entry, Rule, key


class WasteRuleEntry(Entry, frozen=True, kw_only=True):
    noun: ClassVar[str] = "waste_rule"
    named_by: ClassVar[str] = "name"
    name: Annotated[str, Rule(longest=LONGEST_NAME)]
    hours: Annotated[int, Rule(lowest=1, highest=LONGEST)]
    kind: WasteKind = WasteKind.IDLE
    cluster: Annotated[str, Rule(longest=LONGEST_TEXT)] = ""
    busy_at_most: Annotated[int, Rule(lowest=0, highest=MOST_BUSY)] = 1
    except_queues: list[str] = key(default_factory=list)
    except_qoses: list[str] = key(default_factory=list)
    except_names: list[str] = key(default_factory=list)
    action: WasteAction = WasteAction.NOTIFY
    grace_minutes: Annotated[int, Rule(lowest=SHORTEST_GRACE, highest=LONGEST_GRACE)] = GRACE
    watch: bool = True
    choice: WasteChoiceKind = WasteChoiceKind.OPT_OUT

    @property
    def identity(self) -> str:
        return self.name

    def terms(self) -> WasteTerms:
        """As the use case takes it."""
        return WasteTerms(**{name: getattr(self, name) for name in TERMS})

    def write(self, *, moment: datetime) -> WasteRule:
        """Have the rule be so; applied again, nothing changes. Raises WasteRuleError."""
        return set_rule(name=self.name, terms=self.terms(), moment=moment)


TERMS = tuple(WasteTerms.__dataclass_fields__)


def described(row: WasteRule) -> Mapping[str, Any]:
    """What a list of changes says of it, by its keys in a file."""
    return {name: getattr(row, name) for name in TERMS} | {"ended": row.ended_at is not None}
