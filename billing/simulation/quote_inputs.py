"""What quotes for jobs of one tenant have in common: read once, however many lengths of a job are priced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from functools import cached_property

from billing.catalog import billing_periods, terms, third_party_payers
from billing.catalog.terms import Terms
from billing.catalog.third_party_payers import Stretch
from billing.invoicing.statement_rows import load_prices
from billing.models import BillingPeriod, Price
from billing.simulation import engine
from billing.simulation.engine import Used
from portal.core.tenants.models import Tenant


@dataclass
class QuoteInputs:
    """Of one tenant, as it is when each is read first. Not to be kept beyond the question that it is made for."""

    tenant: Tenant
    _rated: dict[int, dict[Used, Fraction]] = field(default_factory=dict)  # by period
    _prices: dict[int, Price] = field(default_factory=dict)

    @cached_property
    def periods(self) -> Sequence[BillingPeriod]:
        """The billing periods that are kept, in order. One query."""
        return billing_periods.list_kept([self.tenant.pk])[self.tenant.pk]

    @cached_property
    def is_by_statement(self) -> bool:
        """Whether prices of single units do not tell all. One query."""
        return bool(terms.list_by_statement([self.tenant.pk]))

    @cached_property
    def terms(self) -> Mapping[int, Terms]:
        """What its plans say beside their prices."""
        return terms.of_tenants([self.tenant.pk]) if self.is_by_statement else {}

    @cached_property
    def stretches(self) -> Sequence[Stretch]:
        """When others paid for it."""
        return third_party_payers.stretches_of(tenants=[self.tenant.pk]) if self.is_by_statement else []

    def list_covering(self, since: datetime, until: datetime) -> list[BillingPeriod]:
        """The periods that make up [since, until); none where one of them is not kept yet."""
        touched = [row for row in self.periods if row.start < until and row.end > since]
        return touched if touched and touched[0].start <= since and until <= touched[-1].end else []

    def load_rated(self, periods: Iterable[BillingPeriod]) -> dict[Used, Fraction]:
        """What is charged in these as it is rated. One query for all that were not read before."""
        ids = [period.pk for period in periods]
        if lacking := [pk for pk in ids if pk not in self._rated]:
            self._rated |= {pk: {} for pk in lacking}
            for key, seconds in engine.rated_use(lacking).items():
                self._rated[key.period][key] = seconds
        return {key: seconds for pk in ids for key, seconds in self._rated[pk].items()}

    def load_prices(self, ids: Iterable[int | None]) -> Mapping[int, Price]:
        """By id, with their plans. One query for all that were not read before."""
        if lacking := {pk for pk in ids if pk is not None} - self._prices.keys():
            self._prices |= load_prices(lacking)
        return self._prices
