"""Who holds which waiting jobs of an account, by the holds and releases from here that stood: the last one counts."""

from __future__ import annotations

from functools import cached_property

from clusters.blocks import OPERATOR
from clusters.models import Act, ActKind, ActOutcome, Cluster


class HoldHistory:
    """Of one account. Targets are those of acts: `job 17@1772000000`. One query, when it is first asked.

    A source is the operator's hand, or begins with its kind: `quota:7`. Sources of one kind hold together.
    """

    def __init__(self, cluster: Cluster, account: str) -> None:
        self._acts = Act.objects.filter(
            cluster=cluster,
            account=account,
            kind__in=[ActKind.HOLD, ActKind.RELEASE],
            outcome=ActOutcome.DONE,
        )

    @cached_property
    def _last(self) -> dict[str, tuple[str, str]]:
        rows = self._acts.order_by("pk").values_list("target", "kind", "who")
        return {target: (kind, who) for target, kind, who in rows}

    def list_holds(self, source: str) -> set[str]:
        """What the source may release: the operator's hand whatever was held here, others what their kind held."""
        return {
            target
            for target, (kind, who) in self._last.items()
            if kind == ActKind.HOLD and (source == OPERATOR or who.startswith(_kind_of(source)))
        }

    def list_let_go_by_hand(self, source: str) -> set[str]:
        """What somebody let go whom the source has held, or an operator let go here: not fought over."""
        if source == OPERATOR:
            return set()
        return {
            target
            for target, (kind, who) in self._last.items()
            if (kind == ActKind.HOLD) == who.startswith(_kind_of(source))
        }

    def list_holds_of_others(self, source: str) -> set[str]:
        """What another source than the operator's hand holds, where that one is to hold it, too."""
        if source != OPERATOR:
            return set()
        return {
            target
            for target, (kind, who) in self._last.items()
            if kind == ActKind.HOLD and ":" in who.partition("@")[0]
        }


def _kind_of(source: str) -> str:
    """How the names of its kind begin: `quota:`."""
    return source.partition(":")[0] + ":"
