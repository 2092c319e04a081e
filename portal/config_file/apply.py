"""Applying a configuration file: all of it in one transaction, or none of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from django.db import IntegrityError, connection, transaction
from django.db.models import Q

from billing.catalog.plans import PlanError
from billing.emails.contacts import ContactError
from billing.invoicing.close_schedules import ScheduleError
from billing.limits.limits import LimitTermsError
from billing.quotas.quotas import Setter
from billing.quotas.terms import QuotaError
from billing.rating import engine
from billing.receivables.dunning_policies import PolicyError
from billing.reports import operating_costs
from billing.reports.operating_costs import OperatingCostError
from billing.rules.errors import RuleError
from billing.service_credits.rules import FailureRuleError
from billing.sign_up.policy import SignUpError
from billing.wallets.entries import WalletError
from billing.waste.rules import WasteRuleError
from clusters.capacity import CapacityError
from clusters.meters import MeterError
from clusters.models import Account, Cluster, ClusterError
from portal.config_file import diff, plans
from portal.config_file.accounts import Claim, settle
from portal.config_file.clusters import ClusterEntry
from portal.config_file.meters import MeterEntry
from portal.config_file.plan_entries import PlanEntry
from portal.config_file.schema import File, parse
from portal.config_file.tenants import TenantEntry
from portal.config_file.toml_table import ConfigError
from portal.config_file.toml_values import instant
from portal.core.tenants.logos import BrandError
from portal.core.tenants.models import Ownership, Tenant
from portal.core.tenants.ownership import OwnershipConflictError
from portal.core.tenants.single_sign_on import SignOnError
from portal.core.tenants.team import TeamError
from portal.excerpt import excerpt, quoted
from portal.ops.cli import first_line

Progress = Callable[[int], None]
REFUSALS = (
    ConfigError,
    PlanError,
    OwnershipConflictError,
    CapacityError,
    ClusterError,
    MeterError,
    WalletError,
    OperatingCostError,
    PolicyError,
    ScheduleError,
    TeamError,
    ContactError,
    SignOnError,
    QuotaError,
    LimitTermsError,
    WasteRuleError,
    FailureRuleError,
    SignUpError,
    BrandError,
    RuleError,
)


@dataclass(frozen=True, slots=True)
class Applied:
    """What differs now, and how many accounts had their usage rated again for it."""

    changes: list[diff.Change]
    rated_accounts: int


def apply(
    *, file: File, preview: bool = False, progress: Progress | None = None, moment: datetime | None = None
) -> Applied:
    """Bring the configuration to what the file says, and rate the usage that is affected again.

    Applied a second time it changes nothing. What the file does not mention stays as it is.
    `preview` does everything and keeps nothing. Raises ConfigError, having changed nothing, with
    every sentence that can be said at once. `progress` gets the records rated, slice by slice. `moment` is when quotas
    are set; None: now, by the database's clock.
    """
    with transaction.atomic():
        before = diff.snapshot()
        _Writer(file, moment or _now()).write()
        after = diff.snapshot()
        accounts = _accounts(diff.affected(before, after))
        engine.rate_accounts(accounts, progress=progress)
        if preview:
            transaction.set_rollback(True)
    return Applied(diff.difference(before, after), len(accounts))


def write_plans(entries: Sequence[PlanEntry]) -> None:
    """Have plans be as these entries say, rating nothing. Raises ConfigError: the caller's transaction ends with it."""
    _Writer(parse("").replaced(plans=list(entries)), _now()).write()


def _now() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT date_trunc('second', now())")
        moment: datetime = cursor.fetchone()[0]
    return moment


def _accounts(affected: diff.Affected) -> list[int]:
    """Accounts that changed hands, and all that the tenants whose terms changed ever owned."""
    tenants = Tenant.objects.filter(
        Q(pk__in=affected.tenants) | Q(subscriptions__plan__in=affected.plans)
    ).values("pk")
    owned = Ownership.objects.filter(tenant__in=tenants).values_list("account", flat=True)
    return sorted(affected.accounts | set(owned))


class _Writer:
    """Writes a file entry by entry; an entry that is refused is undone, and the next one is tried."""

    def __init__(self, file: File, moment: datetime) -> None:
        self.file = file
        self.moment = moment
        self.errors: list[str] = []
        self.tenants: dict[str, Tenant] = {}

    def write(self) -> None:
        """Raises ConfigError where anything was refused: the caller's transaction ends with it.

        Plans may have a price for one tenant alone, so tenants come before; a currency may change with who pays.
        """
        file = self.file
        self.single_tables()
        for rate in file.tax_rates:
            rate.write()
        counted: list[ClusterEntry | MeterEntry] = [*file.meters, *file.clusters]
        for listed in counted:
            with self.refusals(listed.label):
                listed.write()
        for rule in file.waste_rules:
            with self.refusals(rule.label):
                rule.write(moment=self.moment)
        for failure_rule in file.failure_rules:
            with self.refusals(failure_rule.label):
                failure_rule.write(moment=self.moment)
        with self.refusals("operating_cost"):
            operating_costs.set_costs([entry.cost for entry in file.costs])
        for tenant in file.tenants:
            with self.refusals(tenant.label):
                self.tenants[tenant.slug] = tenant.write()
        self.identity_providers()
        for plan in file.plans:
            with self.refusals(plan.label):
                plans.write(plan, self.refusals)
        self.owners()
        written = [(entry, self.tenants[entry.slug]) for entry in file.tenants if entry.slug in self.tenants]
        for entry, row in written:
            with self.refusals(entry.label):
                entry.write_payer(row)
        for entry, row in written:
            with self.refusals(entry.label):
                entry.write_subscription(row, {plan.name for plan in file.plans})
            self.tables_of(entry, row)
        if self.errors:
            raise ConfigError(*self.errors)

    def single_tables(self) -> None:
        """Those that a file has once, and that depend on no other."""
        file = self.file
        for entry in (file.brand, file.seller, file.sign_up):
            if entry is not None:
                with self.refusals(entry.noun):
                    entry.write()
        if file.close is not None:
            with self.refusals("close"):
                file.close.write(None)

    def tables_of(self, entry: TenantEntry, row: Tenant) -> None:
        """What stands in tables within a tenant's and is written once its plan is."""
        for wallet in entry.wallets:
            with self.refusals(wallet.label):
                wallet.write(row)
        for contact in entry.contacts:
            with self.refusals(contact.label):
                contact.write(row, moment=self.moment)
        for quota in sorted(
            entry.quotas, key=lambda one: not one.lends
        ):  # pools first: others borrow from them
            with self.refusals(quota.label):
                quota.write(row, by=Setter.OPERATOR, moment=self.moment)
        for limit in entry.limits:
            with self.refusals(limit.label):
                limit.write(row, moment=self.moment)

    def identity_providers(self) -> None:
        for provider in self.file.identity_providers:
            with self.refusals(provider.label):
                provider.write()

    @contextmanager
    def refusals(self, label: str) -> Iterator[None]:
        try:
            with transaction.atomic():
                yield
        except REFUSALS as error:
            self.errors.append(f"{label}: {error}")
        except IntegrityError as error:
            self.errors.append(
                f"{label}: something else changed it meanwhile; apply the file again. "
                f"({excerpt(first_line(error))})"
            )

    def owners(self) -> None:
        """Account by account over all tenants of the file, since a hand-over concerns two of them."""
        claims: dict[tuple[str, str], list[Claim]] = {}
        for tenant in self.file.tenants:
            if tenant.slug not in self.tenants:
                continue
            owner = self.tenants[tenant.slug]
            for entry in tenant.accounts:
                since, until = (instant(moment, owner.zone) for moment in (entry.since, entry.until))
                claim = Claim(entry.label, owner, entry.project, since, until)
                claims.setdefault((entry.cluster, entry.account), []).append(claim)
        clusters = {cluster.name: cluster for cluster in Cluster.objects.all()}
        for (cluster, name), listed in claims.items():
            with self.refusals(listed[0].label):
                if cluster not in clusters:
                    raise ConfigError(f"cluster is {quoted(cluster)}, {plans.missing(Cluster)}.")
                account, _ = Account.objects.get_or_create(cluster=clusters[cluster], name=name)
                settle(account=account, claims=listed)
