"""Pools that projects of a tenant borrow from: what each has of it beyond its own amount, and what is left to borrow.

Nothing is counted for it: a project has borrowed what it used beyond its own, so the figures of the projects say all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from django.db.models import Q

from billing.models import Quota
from billing.quotas.quotas import list_quotas

if TYPE_CHECKING:
    from billing.quotas.figures import Figure

NOTHING = Fraction(0)


@dataclass(frozen=True, slots=True)
class Loan:
    """What a project has of a pool, in the pool's unit."""

    quota: str
    project: str
    used: Fraction
    reserved: Fraction


def load_relatives(quotas: Sequence[Quota]) -> list[Quota]:
    """Those whose figures are needed, too: pools, and all who borrow from these. One query, none without pools."""
    pools = {quota.pk for quota in quotas if quota.lends}
    pools |= {quota.borrows_from_id for quota in quotas if quota.borrows_from_id is not None}
    if not pools:
        return []
    related = list_quotas().filter(Q(pk__in=pools) | Q(borrows_from__in=pools))
    return list(related.exclude(pk__in=[quota.pk for quota in quotas if quota.pk]))


def share(quotas: Sequence[Quota], figures: Mapping[int, Figure]) -> dict[int, Figure]:
    """The figures of pools and of their borrowers, as each is by the others'; of all relatives at once."""
    borrowers: dict[int, list[Quota]] = defaultdict(list)
    for quota in quotas:
        if quota.borrows_from_id is not None:
            borrowers[quota.borrows_from_id].append(quota)
    results: dict[int, Figure] = {}
    for pool in quotas:
        if pool.lends:
            members = sorted(borrowers[pool.pk], key=lambda member: member.name)
            results |= _shared(pool, members, figures)
    return results


def _shared(pool: Quota, members: Sequence[Quota], figures: Mapping[int, Figure]) -> dict[int, Figure]:
    amount = figures[pool.pk].amount(pool)
    loans = {member.pk: _loan(member, figures[member.pk]) for member in members}
    lent = sum((loan.used for loan in loans.values()), NOTHING)
    reserved = sum((loan.reserved for loan in loans.values()), NOTHING)
    speed = sum((figures[pk].speed for pk in loans), NOTHING)
    results = {}
    for pk, loan in loans.items():
        borrowable = max(NOTHING, amount - (lent - loan.used))
        promised = min(borrowable, reserved - loan.reserved)
        results[pk] = replace(figures[pk], borrowable=borrowable, promised=promised, pool_speed=speed)
    rated = sum((_excess(figures[one.pk].rated, one, figures[one.pk]) for one in members), NOTHING)
    read = [figures[pk].as_of for pk in loans]
    stale = [at for pk in loans if (at := figures[pk].stale_since) is not None]
    results[pool.pk] = replace(
        figures[pool.pk],
        rated=rated,
        counted_on=lent - rated,
        reserved=reserved,
        speed=speed,
        as_of=min((at for at in read if at is not None), default=None) if None not in read else None,
        stale_since=min(stale, default=None),
        loans=tuple(loans.values()),
    )
    return results


def _loan(member: Quota, figure: Figure) -> Loan:
    used = _excess(figure.used, member, figure)
    held = _excess(figure.used + figure.reserved, member, figure)
    project = member.project.name if member.project else ""
    return Loan(member.name, project, used, held - used)


def _excess(used: Fraction, member: Quota, figure: Figure) -> Fraction:
    """Beyond its own."""
    return max(NOTHING, used - figure.amount(member))
