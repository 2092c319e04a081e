"""What pages count: each noun in its two forms, for `format.counted`."""

from __future__ import annotations


def _n(one: str, many: str) -> tuple[str, str]:
    """Marks both forms for gettext."""
    return one, many


NOUNS = (
    _n("day", "days"),
    _n("hour", "hours"),
    _n("invoice", "invoices"),
    _n("sign-up", "sign-ups"),
    _n("job", "jobs"),
    _n("part", "parts"),
    _n("more row", "more rows"),
    _n("node", "nodes"),
    _n("open invoice", "open invoices"),
    _n("other", "others"),
    _n("sum", "sums"),
    _n("wallet", "wallets"),
)
