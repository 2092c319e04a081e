"""Which tenant an account probably belongs to, by its name: offered to an operator, who decides."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from difflib import SequenceMatcher

from portal.core.tenants.models import Ownership, Tenant

ALIKE = 0.8
"""How alike two names are at least, by difflib's ratio."""
SHORTEST = 3  # characters of a word that names can share
COMMON = frozenset(
    {"lab", "labs", "team", "group", "project", "account", "default", "gpu", "inc", "gmbh", "ltd", "llc"}
)
"""Words that say nothing of whose it is."""


def suggest_tenants(accounts: Collection[str], tenants: Iterable[Tenant]) -> Mapping[str, Tenant]:
    """By account name the tenant that fits best; none where nothing fits or two fit alike. One query.

    Whoever owns an account of that name on another cluster comes first; then the same name, then a word that the names
    share, then names that are spelled alike.
    """
    tenants = list(tenants)
    by_pk = {tenant.pk: tenant for tenant in tenants}
    owners: dict[str, set[int]] = {}
    rows = Ownership.objects.filter(account__name__in=[*accounts], until=None).values_list(
        "account__name", "tenant"
    )
    for name, owner in rows:
        owners.setdefault(name, set()).add(owner)
    found: dict[str, Tenant] = {}
    for name in accounts:
        own = owners.get(name, set()) & by_pk.keys()
        best = by_pk[next(iter(own))] if len(own) == 1 else _best(name, tenants)
        if name and best is not None:
            found[name] = best
    return found


def _best(name: str, tenants: Iterable[Tenant]) -> Tenant | None:
    """The one that scores highest, where it does alone."""
    scored = sorted(
        ((_score(name, tenant), tenant) for tenant in tenants), key=lambda pair: pair[0], reverse=True
    )
    if not scored or not scored[0][0] or (len(scored) > 1 and scored[1][0] == scored[0][0]):
        return None
    return scored[0][1]


def _score(name: str, tenant: Tenant) -> float:
    """From 0, nothing in common, to 3, the same name."""
    return max(_likeness(name, tenant.slug), _likeness(name, tenant.name))


def _likeness(one: str, other: str) -> float:
    left, right = _words(one), _words(other)
    plain = "".join(left), "".join(right)
    if plain[0] == plain[1]:
        return 3.0 if plain[0] else 0.0
    shared = {word for word in {*left} & {*right} if len(word) >= SHORTEST} - COMMON
    if shared:
        return 2.0
    ratio = SequenceMatcher(None, *plain).ratio()
    return ratio if ratio >= ALIKE else 0.0


def _words(name: str) -> list[str]:
    return re.findall(r"[^\W_]+", name.casefold())
