"""Bringing the owners of one account to what a file says, moving no more than it says."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from clusters.models import Account
from portal.core.tenants import ownership
from portal.core.tenants.models import Ownership, Tenant
from portal.core.tenants.ownership import OwnershipConflictError


@dataclass(slots=True)
class Claim:
    """That the tenant owns the account; a bound that the file does not have is None."""

    label: str
    tenant: Tenant
    project: str
    since: datetime | None
    until: datetime | None
    stored: Ownership | None = None

    def spans(self, other: Ownership) -> bool:
        """Whether both hold at some instant."""
        starts = other.until is None or self.since is None or self.since < other.until
        return starts and (self.until is None or other.since is None or other.since < self.until)


def settle(*, account: Account, claims: list[Claim]) -> None:
    """Have each claim hold: as it stands, by moving a border, or by a hand-over.

    A bound that the file leaves out ends where the next claim begins, or else stays as it is; for a
    new owner it is open. Raises OwnershipConflictError where two would own it at once.
    """
    rows = list(
        Ownership.objects.filter(account=account).select_related("tenant", "project").order_by("since", "pk")
    )
    rows.sort(key=lambda row: row.since is not None)
    claims.sort(key=lambda claim: (claim.since is not None, claim.since))
    for claim in claims:
        _find(claim, rows, claimed=[other.stored for other in claims])
        if claim.since is None and claim.stored is not None:
            claim.since = claim.stored.since
    _bound(claims)
    moved = [(claim, claim.stored) for claim in claims if claim.stored is not None]
    moved.sort(key=lambda pair: _grows(*pair))  # what shrinks makes room first
    for claim, row in moved:
        ownership.amend(ownership=row, since=claim.since, until=claim.until)
    for claim in claims:
        if claim.stored is None:
            ownership.assign(
                account=account,
                tenant=claim.tenant,
                project=claim.project,
                since=claim.since,
                until=claim.until,
            )


def _find(claim: Claim, rows: list[Ownership], *, claimed: list[Ownership | None]) -> None:
    """Which stored ownership the claim is about: the one that begins with it, else one that it overlaps."""
    mine = [
        row
        for row in rows
        if row.tenant == claim.tenant and claim.project in {"", row.project.name} and row not in claimed
    ]
    alike = [row for row in mine if row.since == claim.since]
    claim.stored = next(iter(alike or [row for row in mine if claim.spans(row)]), None)


def _bound(claims: list[Claim]) -> None:
    """Give each claim without an end the next one's beginning, or the end that is stored."""
    for claim, following in zip(claims, [*claims[1:], None], strict=True):
        if following is not None:
            if following.since is None or claim.since == following.since:
                raise OwnershipConflictError("begin-at-once", claim=claim.label, following=following.label)
            if claim.until is not None and claim.until > following.since:
                raise OwnershipConflictError("ends-after-next", claim=claim.label, following=following.label)
        if claim.until is None and following is not None:
            claim.until = following.since
        elif claim.until is None and claim.stored is not None:
            claim.until = claim.stored.until


def _grows(claim: Claim, row: Ownership) -> bool:
    earlier = row.since is not None and (claim.since is None or claim.since < row.since)
    return earlier or (row.until is not None and (claim.until is None or claim.until > row.until))
