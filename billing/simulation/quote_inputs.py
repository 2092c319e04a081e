"""What quotes for jobs of one tenant have in common: read once, however many lengths of a job are priced."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from fractions import Fraction
from functools import cached_property

from billing.catalog import allowances, terms
from billing.catalog.allowances import Cut, Included
from billing.catalog.terms import Terms
from billing.catalog.third_party_payers import Stretch
from billing.invoicing.statement_inputs import StatementInputs
from billing.models import BillingPeriod
from billing.simulation import engine
from billing.simulation.engine import Used
from portal.core.tenants.models import Tenant


class QuoteInputs:
    """Of one tenant, as it is when each is read first. Not to be kept beyond the question that it is made for.

    `by_statement`: as of `terms.is_by_statement`, where that is read already.
    """

    def __init__(
        self,
        tenant: Tenant,
        *,
        by_statement: bool | None = None,
        statements: StatementInputs | None = None,
    ) -> None:
        self.tenant = tenant
        self.statements = statements or StatementInputs(frozenset([tenant.pk]))
        self._known = by_statement
        self._rated: dict[int, dict[Used, Fraction]] = {}  # by period
        self._included: dict[tuple[int, tuple[int, ...], Fraction, int | None], Included] = {}

    @property
    def periods(self) -> Sequence[BillingPeriod]:
        """The billing periods that are kept, in order. One query."""
        return self.statements.calendars[self.tenant.pk]

    @cached_property
    def by_statement(self) -> bool:
        """Whether prices of single units do not tell all. One query."""
        return terms.is_by_statement(self.tenant) if self._known is None else self._known

    @property
    def terms(self) -> Mapping[int, Terms]:
        """What its plans say beside their prices."""
        own = self.statements.terms.get(self.tenant.pk) if self.by_statement else None
        return {self.tenant.pk: own} if own else {}

    @property
    def stretches(self) -> Sequence[Stretch]:
        """When others paid for it."""
        return [row for row in self.statements.stretches if row.tenant == self.tenant.pk]

    def with_periods(self, new_periods: Sequence[BillingPeriod]) -> QuoteInputs:
        """The same where these were kept, too: nothing is rated in them. What was read is not read again."""
        inputs = QuoteInputs(
            self.tenant, by_statement=self.by_statement, statements=self.statements.with_periods(new_periods)
        )
        inputs._rated = {**self._rated, **{period.pk: {} for period in new_periods}}
        inputs._included = dict(self._included)
        return inputs

    def list_covering(self, since: datetime, until: datetime) -> list[BillingPeriod]:
        """The periods that make up [since, until); none where one of them is not kept yet."""
        touched = [row for row in self.periods if row.start < until and row.end > since]
        return touched if touched and touched[0].start <= since and until <= touched[-1].end else []

    def load_rated(self, periods: Iterable[BillingPeriod], prices: Iterable[int]) -> dict[Used, Fraction]:
        """What is charged in these as it is rated. One query for all that were not read before, with these prices."""
        ids = [period.pk for period in periods]
        if lacking := [pk for pk in ids if pk not in self._rated]:
            self._rated |= {pk: {} for pk in lacking}
            used, by_id = engine.rated_use(lacking, {*prices} - self.statements.prices.keys())
            self.statements.prices |= by_id
            for key, seconds in used.items():
                self._rated[key.period][key] = seconds
        return {key: seconds for pk in ids for key, seconds in self._rated[pk].items()}

    def in_order(
        self, period: BillingPeriod, prices: Collection[int], available: Fraction, *, payer: int | None = None
    ) -> Mapping[int, Fraction]:
        """As `allowances.in_order`. Two queries the first time."""
        return self._load_included(period, prices, available, payer).by_price

    def in_order_with(
        self,
        period: BillingPeriod,
        prices: Collection[int],
        available: Fraction,
        *,
        cuts: Sequence[Cut],
        payer: int | None = None,
    ) -> Mapping[int, Fraction]:
        """As `allowances.in_order_with`. No more queries of a run that begins after all that is rated."""
        rated = self._load_included(period, prices, available, payer)
        sharing = [
            cut
            for cut in cuts
            if (cut.period, cut.payer) == (period.pk, payer) and cut.price is not None and cut.price in prices
        ]
        if rated.last is not None and any(cut.service_from <= rated.last for cut in sharing):
            return allowances.in_order_with(period, prices, available, cuts=cuts, payer=payer)
        return allowances.followed_by(rated, available, sharing)

    def _load_included(
        self, period: BillingPeriod, prices: Collection[int], available: Fraction, payer: int | None
    ) -> Included:
        key = (period.pk, tuple(sorted(prices)), available, payer)
        if key not in self._included:
            self._included[key] = allowances.included(period, prices, available, payer=payer)
        return self._included[key]
