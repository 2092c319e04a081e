"""Applying a configuration file: all of it in one transaction, or none of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any, TypeVar

from django.db import IntegrityError, transaction
from django.db.models import Model, Q

from billing.catalog import plan_versions, plans, subscriptions
from billing.catalog.plans import PlanError
from billing.invoicing.close_schedules import ScheduleError
from billing.models import Plan, PlanVersion, Seller
from billing.rating import engine
from billing.receivables.dunning_policies import PolicyError
from billing.reports.operating_costs import OperatingCostError
from billing.rules.tiers import of_terms
from billing.wallets.entries import WalletError
from clusters.capacity import CapacityError
from clusters.declared import declare_nodes
from clusters.models import Account, Cluster, ClusterError
from portal.config_file import (
    approvals,
    connections,
    costs,
    diff,
    dunning,
    payers,
    phases,
    schedules,
    taxes,
    terms,
    wallets,
)
from portal.config_file.accounts import Claim, settle
from portal.config_file.schema import ConfigError, File, PlanEntry, PriceEntry, TenantEntry, parse
from portal.config_file.toml_table import Moment
from portal.core.tenants.models import Membership, Ownership, Tenant, User
from portal.core.tenants.ownership import OwnershipConflictError
from portal.excerpt import excerpt, quoted
from portal.ops.cli import first_line, midnight

M = TypeVar("M", bound=Model)
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Applied:
    """What differs now, and how many accounts had their usage rated again for it."""

    changes: list[diff.Change]
    rated_accounts: int


def apply(*, file: File, rehearse: bool = False, progress: Progress | None = None) -> Applied:
    """Bring the configuration to what the file says, and rate the usage that is affected again.

    Applied a second time it changes nothing. What the file does not mention stays as it is.
    `rehearse` does everything and keeps nothing. Raises ConfigError, having changed nothing, with
    every sentence that can be told at once. `progress` gets the records rated, slice by slice.
    """
    with transaction.atomic():
        before = diff.snapshot()
        _Writer(file).write()
        after = diff.snapshot()
        accounts = _accounts(diff.affected(before, after))
        engine.rate_accounts(accounts, progress=progress)
        if rehearse:
            transaction.set_rollback(True)
    return Applied(diff.difference(before, after), len(accounts))


def write_plans(entries: Sequence[PlanEntry]) -> None:
    """Have plans be as these entries say, rating nothing. Raises ConfigError: the caller's transaction ends with it."""
    _Writer(replace(parse(""), plans=list(entries))).write()


def _accounts(affected: diff.Affected) -> list[int]:
    """Accounts that changed hands, and all that the tenants whose terms changed ever owned."""
    tenants = Tenant.objects.filter(
        Q(pk__in=affected.tenants) | Q(subscriptions__plan__in=affected.plans)
    ).values("pk")
    owned = Ownership.objects.filter(tenant__in=tenants).values_list("account", flat=True)
    return sorted(affected.accounts | set(owned))


class _Writer:
    """Writes a file entry by entry; an entry that is refused is undone, and the next one is tried."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.errors: list[str] = []
        self.tenants: dict[str, Tenant] = {}

    def write(self) -> None:
        """Raises ConfigError where anything was refused: the caller's transaction ends with it."""
        with self.refusals("seller"):
            self.seller()
        with self.refusals("close"):
            schedules.write(tenant=None, days=self.file.close)
        for rate in self.file.tax_rates:
            taxes.write(rate)
        for cluster in self.file.clusters:
            with self.refusals(f'cluster "{excerpt(cluster.name)}"'):
                kept = Cluster.objects.filter(name=cluster.name).first()
                if kept is not None and cluster.fields.get("timezone", kept.timezone) != kept.timezone:
                    kept.refuse_new_zone()
                written = _update(kept or Cluster(name=cluster.name), cluster.fields)
                if cluster.connection is not None:
                    connections.write(cluster=written, entry=cluster.connection)
                if cluster.telemetry is not None:
                    connections.write_telemetry(cluster=written, entry=cluster.telemetry)
                if cluster.nodes is not None:
                    declare_nodes(cluster=written, nodes=cluster.nodes)
        with self.refusals("operating_cost"):
            costs.write(self.file.costs)
        for tenant in self.file.tenants:
            with self.refusals(tenant.table.name):
                self.tenant(tenant)
        for plan in self.file.plans:  # which may have a price for one tenant alone
            with self.refusals(plan.table.name):
                self.plan(plan)
        self.owners()
        self.payers()
        for tenant in self.file.tenants:
            with self.refusals(tenant.table.name):
                self.subscription(tenant)
            for wallet in tenant.wallets if tenant.slug in self.tenants else ():
                with self.refusals(wallet.table.name):
                    wallets.write(tenant=self.tenants[tenant.slug], entry=wallet)
        if self.errors:
            raise ConfigError(*self.errors)

    @contextmanager
    def refusals(self, name: str) -> Iterator[None]:
        try:
            with transaction.atomic():
                yield
        except (
            ConfigError,
            PlanError,
            OwnershipConflictError,
            CapacityError,
            ClusterError,
            WalletError,
            OperatingCostError,
            PolicyError,
            ScheduleError,
        ) as error:
            self.errors.append(f"{name}: {error}")
        except IntegrityError as error:
            self.errors.append(
                f"{name}: something else changed it meanwhile; apply the file again. "
                f"({excerpt(first_line(error))})"
            )

    def seller(self) -> None:
        approvals.write(tenant=None, limits=self.file.approval_limits)
        dunning.write(tenant=None, said=self.file.dunning)
        if not self.file.seller:
            return
        seller = Seller.objects.order_by("pk").first()
        if seller is None and "name" not in self.file.seller:
            raise ConfigError("name is missing; invoices begin with it.")
        seller = seller or Seller()
        said = {
            "invoice_prefix": seller.invoice_prefix,
            "credit_prefix": seller.credit_prefix,
        } | self.file.seller
        if said["invoice_prefix"] == said["credit_prefix"]:
            raise ConfigError("credit_prefix is invoice_prefix; credit notes have a series of their own.")
        seller = _update(seller, self.file.seller)
        if refusal := taxes.refusal_of_seller(seller):
            raise ConfigError(refusal)

    def plan(self, entry: PlanEntry) -> None:
        plan = plans.set_plan(name=entry.name, currency=entry.currency, settles=entry.settles)
        version = plans.new_version(plan=plan, effective_from=_first_day(plan, entry), charges=entry.charges)
        terms.write(version, entry.terms)
        made = {}
        for price in sorted(entry.prices, key=lambda price: price.since):
            with self.refusals(price.table.name):
                made[id(price)] = self.price(version, price)
        standing = [made[id(price)] for price in entry.prices if id(price) in made]
        if len({price.pk for price in standing}) < len(standing):
            raise ConfigError(
                "two of its prices have the same meter, `where`, `hours` and `from`; leave one out."
            )
        plans.arrange(standing)

    def price(self, version: PlanVersion, entry: PriceEntry) -> Any:
        unknown = set(entry.where.get("cluster", ())) - set(Cluster.objects.values_list("name", flat=True))
        if unknown:
            raise ConfigError(f"where.cluster names {quoted(min(unknown))}, {_known_clusters()}.")
        tenant = Tenant.objects.filter(slug=entry.tenant).first() if entry.tenant else None
        if entry.tenant and tenant is None:
            raise ConfigError(
                f"tenant is {quoted(entry.tenant)}, which neither the file nor the database has."
            )
        try:
            model = of_terms(entry.terms)
        except ValueError as error:
            raise ConfigError(str(error)) from error
        return plans.set_price(
            version=version,
            meter=entry.meter,
            where=entry.where,
            hours=entry.hours,
            model=model,
            allowance=plan_versions.allowance_of(version, entry.allowance) if entry.allowance else None,
            tenant=tenant,
            valid_from=entry.since,
            valid_until=entry.until,
        )

    def tenant(self, entry: TenantEntry) -> None:
        tenant = Tenant.objects.filter(slug=entry.slug).first()
        if tenant is None and "name" not in entry.fields:
            raise ConfigError("name is missing; it is what invoices are addressed to.")
        tenant = tenant or Tenant(slug=entry.slug)
        if refusal := taxes.refusal(tenant, entry.fields):
            raise ConfigError(refusal)
        tenant = _update(tenant, entry.fields)
        self.tenants[entry.slug] = tenant
        approvals.write(tenant=tenant, limits=entry.approval_limits)
        dunning.write(tenant=tenant, said=entry.dunning)
        schedules.write(tenant=tenant, days=entry.close)
        for email, role in entry.members:
            person = User.objects.filter(email=email).first() or User.objects.create_user(email)
            member = Membership.objects.filter(user=person, tenant=tenant).first()
            _update(member or Membership(user=person, tenant=tenant), {"role": role})

    def owners(self) -> None:
        """Account by account over all tenants of the file, since a hand-over concerns two of them."""
        claims: dict[tuple[str, str], list[Claim]] = {}
        for entry in self.file.tenants:
            tenant = self.tenants.get(entry.slug)
            if tenant is None:
                continue
            for said in entry.accounts:
                since, until = (_instant(moment, tenant) for moment in (said.since, said.until))
                claim = Claim(said.table, tenant, said.project, since, until)
                claims.setdefault((said.cluster, said.account), []).append(claim)
        clusters = {cluster.name: cluster for cluster in Cluster.objects.all()}
        for (cluster, name), asked in claims.items():
            with self.refusals(asked[0].table.name):
                if cluster not in clusters:
                    raise ConfigError(f"cluster is {quoted(cluster)}, {_known_clusters()}.")
                account, _ = Account.objects.get_or_create(cluster=clusters[cluster], name=name)
                settle(account=account, claims=asked)

    def payers(self) -> None:
        """Before subscriptions, so that a currency may change with who pays."""
        for tenant in self.file.tenants:
            if tenant.payer is not None and tenant.slug in self.tenants:
                with self.refusals(tenant.table.name):
                    payers.write(tenant=self.tenants[tenant.slug], entry=tenant.payer)

    def subscription(self, entry: TenantEntry) -> None:
        tenant = self.tenants.get(entry.slug)
        if entry.phases and tenant is not None:
            phases.write(tenant=tenant, phases=entry.phases)
        if entry.plan is None or tenant is None:
            return
        plan = Plan.objects.filter(name=entry.plan).first()
        if plan is None:
            if entry.plan in {other.name for other in self.file.plans}:
                return  # refused above, with its own sentence
            known = ", ".join(Plan.objects.order_by("name").values_list("name", flat=True)) or "none yet"
            raise ConfigError(
                f"plan is {quoted(entry.plan)}, which neither the file nor the database has; known: {known}."
            )
        since = _instant(entry.plan_from, tenant)
        if since is None:
            standing = tenant.subscriptions.select_related("plan").order_by("-since")
            if any(subscription.plan == plan for subscription in standing):
                return
            if other := standing.first():
                raise ConfigError(
                    f"it is on plan {other.plan}; say with plan_from from when plan {plan} applies."
                )
            since = _beginning(plan, tenant)
        subscriptions.subscribe(tenant=tenant, plan=plan, since=since)


def _first_day(plan: Plan, entry: PlanEntry) -> date:
    """The version that the entry means: the day it says, or the only version there is."""
    known = sorted(plan.versions.values_list("effective_from", flat=True))
    if entry.said_from or not known or entry.since in known:
        return entry.since
    if len(known) > 1:
        listed = ", ".join(str(day) for day in known)
        raise ConfigError(
            f"it has several versions: say with `from` which one is meant ({listed}), or a new day."
        )
    if entry.since < known[0]:
        raise ConfigError(
            f"a price begins on {entry.since}, before the plan does on {known[0]}: say with `from` from when "
            f"this version of it applies."
        )
    return known[0]


def _beginning(plan: Plan, tenant: Tenant) -> datetime:
    first = plan.versions.order_by("effective_from").values_list("effective_from", flat=True).first()
    if first is None:
        raise ConfigError(f"plan {plan} has no version yet; say with plan_from from when it applies.")
    return midnight(first, tenant.zone)


def _known_clusters() -> str:
    known = ", ".join(Cluster.objects.order_by("name").values_list("name", flat=True)) or "none yet"
    return f"which neither the file nor the database has; known: {known}"


def _instant(moment: Moment | None, tenant: Tenant) -> datetime | None:
    if moment is None or isinstance(moment, datetime):
        return moment
    return midnight(moment, tenant.zone)


def _update(row: M, fields: dict[str, Any]) -> M:
    """Save the row if it is new or a field of it differs."""
    differing = [name for name, value in fields.items() if getattr(row, name) != value]
    for name in differing:
        setattr(row, name, fields[name])
    if row.pk is None or differing:
        row.save()
    return row
