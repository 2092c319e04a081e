"""What statements and quotes of the same tenants have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter

from billing.catalog import billing_periods, terms, third_party_payers
from billing.catalog.billing_periods import Calendars
from billing.catalog.terms import Terms
from billing.catalog.third_party_payers import PartiesPeriods, Stretch
from billing.invoicing import statement_rows
from billing.models import BillingPeriod, Payer, Price


@dataclass
class StatementInputs:
    """Of these tenants, as it is when each is read first. Not to be kept beyond the question that it is made for."""

    tenants: frozenset[int]
    prices: dict[int, Price] = field(default_factory=dict)

    @cached_property
    def _parties_periods(self) -> PartiesPeriods:
        return third_party_payers.load_parties_periods(self.tenants)

    @property
    def calendars(self) -> Calendars:
        """Of these, and of those that they ever pay for. One query, with who pays."""
        return self._parties_periods.calendars

    @property
    def payers(self) -> Sequence[Payer]:
        """Who pays for one of them, and for whom one of them pays."""
        return self._parties_periods.payers

    @cached_property
    def stretches(self) -> Sequence[Stretch]:
        """When."""
        return self._parties_periods.stretches()

    @cached_property
    def terms(self) -> Mapping[int, Terms]:
        """Of those whose plans have any, who they pay for among them. One query."""
        return terms.of_tenants(self.calendars, self.calendars)

    def load_prices(self, ids: Iterable[int | None]) -> Mapping[int, Price]:
        """By id, with their plans. One query for all that were not read before."""
        if lacking := {pk for pk in ids if pk is not None} - self.prices.keys():
            self.prices |= statement_rows.load_prices(lacking)
        return self.prices

    def with_periods(self, new_periods: Sequence[BillingPeriod]) -> StatementInputs:
        """The same where these were kept, too."""
        calendars = {pk: list(periods) for pk, periods in self.calendars.items()}
        for period in new_periods:
            calendars[period.tenant_id].append(period)
        for periods in calendars.values():
            periods.sort(key=attrgetter("start"))
        inputs = StatementInputs(self.tenants, self.prices)
        inputs._parties_periods = PartiesPeriods(calendars, self.payers)
        if "terms" in self.__dict__:
            inputs.terms = {pk: replace(one, periods=calendars[pk]) for pk, one in self.terms.items()}
        return inputs

    def reload_calendars(self) -> None:
        """After periods were made. One query."""
        calendars, payers = self._parties_periods.calendars, self._parties_periods.payers
        self._parties_periods = PartiesPeriods(billing_periods.list_kept(calendars), payers)
