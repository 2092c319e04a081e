"""Three reasons to block one account, in every order in which they can come and go."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

from clusters import enforcement_plan, job_control
from clusters.enforcement_plan import SchedulerPort
from tests.tiers import LONG

REASONS = {"operator": False, "dunning": False, "quota": True}
"""Each source, and whether it refuses new jobs too. Quotas will register as the last one does: by naming themselves."""

Order = tuple[str, ...]
"""Of each source the first mention places its reason, the second takes it back."""


def orders() -> list[Order]:
    """With `--long` all 90, else every sixth of them."""
    every = sorted(set(permutations([*REASONS, *REASONS])))
    assert len(every) == 90
    return every if LONG else every[::6]


def play(
    order: Order, *, account: str, opens: Callable[[], SchedulerPort], look: Callable[[set[str]], None]
) -> None:
    """Place and take back as the order says; `look` is called after each, with the sources that stand."""
    stands: set[str] = set()
    for source in order:
        with opens() as port:
            if source in stands:
                stands.remove(source)
                plan = enforcement_plan.plan_unblock(port=port, account=account, source=source)
            else:
                stands.add(source)
                plan = enforcement_plan.plan_block(
                    port=port, account=account, source=source, submits=REASONS[source]
                )
            done = job_control.carry_out(port=port, plan=plan, who=source, why=f"{source} says so")
        assert done.good, order
        assert len(done.acts) == 1
        look(stands)


def refuses(stands: set[str]) -> bool:
    """Whether no job can be submitted while these stand."""
    return any(REASONS[source] for source in stands)
