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
    named = [(tenant, (_Name(tenant.slug), _Name(tenant.name))) for tenant in tenants]
    by_pk = {tenant.pk: tenant for tenant, _names in named}
    owners: dict[str, set[int]] = {}
    rows = Ownership.objects.filter(account__name__in=[*accounts], until=None).values_list(
        "account__name", "tenant"
    )
    for name, owner in rows:
        owners.setdefault(name, set()).add(owner)
    suggestions: dict[str, Tenant] = {}
    for name in accounts:
        own = owners.get(name, set()) & by_pk.keys()
        best = by_pk[next(iter(own))] if len(own) == 1 else _best(name, named)
        if name and best is not None:
            suggestions[name] = best
    return suggestions


class _Name:
    """A tenant's, taken apart once for all accounts that it is compared with."""

    def __init__(self, name: str) -> None:
        words = _words(name)
        self.plain, self.telling = "".join(words), _telling(words)
        self._matcher = SequenceMatcher(None, "", self.plain)

    def likeness(self, plain: str, telling: Collection[str]) -> float:
        """From 0, nothing in common with the account, to 3, the same name."""
        if plain == self.plain:
            return 3.0 if plain else 0.0
        if not self.telling.isdisjoint(telling):
            return 2.0
        self._matcher.set_seq1(plain)
        if self._matcher.real_quick_ratio() < ALIKE or self._matcher.quick_ratio() < ALIKE:  # it is no more
            return 0.0
        ratio = self._matcher.ratio()
        return ratio if ratio >= ALIKE else 0.0


def _best(account: str, named: Iterable[tuple[Tenant, Iterable[_Name]]]) -> Tenant | None:
    """The one that is most alike, where it alone is."""
    words = _words(account)
    plain, telling = "".join(words), _telling(words)
    scored = sorted(
        ((max(one.likeness(plain, telling) for one in names), tenant) for tenant, names in named),
        key=lambda pair: pair[0],
        reverse=True,
    )
    if not scored or not scored[0][0] or (len(scored) > 1 and scored[1][0] == scored[0][0]):
        return None
    return scored[0][1]


def _telling(words: Iterable[str]) -> frozenset[str]:
    return frozenset(word for word in words if len(word) >= SHORTEST) - COMMON


def _words(name: str) -> list[str]:
    return re.findall(r"[^\W_]+", name.casefold())
