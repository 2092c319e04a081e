"""What statements and quotes of the same tenants have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from billing.catalog import billing_periods, terms
from billing.catalog.billing_periods import Calendars
from billing.catalog.terms import Terms
from billing.invoicing import statement_rows
from billing.models import Price


@dataclass
class StatementInputs:
    """Of these tenants, as it is when each is read first. Not to be kept beyond the question that it is made for."""

    tenants: frozenset[int]
    known: Calendars | None = None  # the periods of all of them, where these are read already
    prices: dict[int, Price] = field(default_factory=dict)

    @cached_property
    def calendars(self) -> Calendars:
        """One query, none where they are known."""
        return billing_periods.list_kept(self.tenants) if self.known is None else self.known

    @cached_property
    def terms(self) -> Mapping[int, Terms]:
        """Of those whose plans have any. One query."""
        return terms.of_tenants(self.tenants, self.calendars)

    def terms_with(self, others: Iterable[int]) -> Mapping[int, Terms]:
        """The same with those of other tenants: one query more, and one for their periods; none without any."""
        lacking = set(others) - self.tenants
        return {**self.terms, **terms.of_tenants(lacking)} if lacking else self.terms

    def load_prices(self, ids: Iterable[int | None]) -> Mapping[int, Price]:
        """By id, with their plans. One query for all that were not read before."""
        if lacking := {pk for pk in ids if pk is not None} - self.prices.keys():
            self.prices |= statement_rows.load_prices(lacking)
        return self.prices
