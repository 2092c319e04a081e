"""Tenants in a configuration file: what is invoiced to whom, their people, accounts, plans and payers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime, timedelta
from itertools import pairwise
from typing import Annotated, Any, ClassVar

from django.core.validators import validate_email, validate_slug

from billing.catalog import subscriptions
from billing.catalog.plans import PlanError
from billing.catalog.third_party_payers import PayerError, end_payer, pay_for
from billing.emails import contacts
from billing.models import Plan
from billing.models.contacts import TOPICS
from portal.config_file import taxes
from portal.config_file.entries import Entry, Rule, key, save
from portal.config_file.limits import LimitEntry
from portal.config_file.plan_entries import Slug
from portal.config_file.plans import missing
from portal.config_file.policies import CloseEntry
from portal.config_file.quotas import QuotaEntry
from portal.config_file.sellers import PartyEntry
from portal.config_file.taxes import Percentage, Region
from portal.config_file.toml_table import ConfigError, Table
from portal.config_file.toml_values import Moment, instant, text
from portal.config_file.wallets import WalletEntry
from portal.core.tenants import team
from portal.core.tenants.electronic_address import buyer_reference
from portal.core.tenants.models import (
    Corrections,
    Role,
    TaxTreatment,
    Tenant,
    User,
    ZeroInvoices,
    validate_zone,
)
from portal.excerpt import excerpt, quoted
from portal.languages import Language

LONGEST_PHASE = 36_500  # days


class AccountEntry(Entry, frozen=True, kw_only=True):
    noun: ClassVar[str] = "account"
    cluster: str
    account: Annotated[str, Rule(value=text)]  # Slurm has one without a name
    project: Annotated[str, Rule(longest=200)] = ""
    since: Moment | None = None
    until: Moment | None = None

    @classmethod
    def complete(cls, table: Table, values: dict[str, Any]) -> None:
        name = f"{values.get('cluster')}/{values.get('account')}"
        values["label"] = f"{table.name} ({excerpt(name)})"


class MemberEntry(Entry, frozen=True, kw_only=True):
    noun: ClassVar[str] = "member"
    email: Annotated[str, Rule(longest=254, check=validate_email)]
    role: Role
    scheduler_users: list[str] | None = None

    @property
    def identity(self) -> str:
        return self.email.lower()

    def write(self, tenant: Tenant) -> None:
        """Raises TeamError for the last owner."""
        person = User.objects.filter(email=self.identity).first() or User.objects.create_user(self.identity)
        member = team.add_member(tenant=tenant, user=person, role=self.role)
        if self.scheduler_users is not None:
            team.set_scheduler_users(member=member, names=self.scheduler_users)


class ContactEntry(Entry, frozen=True, kw_only=True):
    noun: ClassVar[str] = "contact"
    named_by: ClassVar[str] = "email"
    email: Annotated[str, Rule(longest=254, check=validate_email)]
    invoices: bool = False
    reminders: bool = False
    receipts: bool = False
    budgets: bool = False

    @property
    def identity(self) -> str:
        return self.email

    def write(self, tenant: Tenant, *, moment: datetime) -> None:
        """Have the address get these e-mails and no others. Raises ContactError."""
        topics = [topic for topic in TOPICS if getattr(self, topic)]
        contacts.set_contact(tenant=tenant, email=self.email, topics=topics, moment=moment)


class PhaseEntry(Entry, frozen=True, kw_only=True):
    noun: ClassVar[str] = "phase"
    plan: str
    since: Moment | None = key(name="from", default=None)
    days: Annotated[int, Rule(lowest=1, highest=LONGEST_PHASE)] | None = None


class TenantEntry(PartyEntry, frozen=True, kw_only=True):
    noun: ClassVar[str] = "tenant"
    named_by: ClassVar[str] = "slug"
    slug: Slug
    timezone: Annotated[str, Rule(filled=True, longest=64, check=validate_zone)] | None = None
    anchor_day: Annotated[int, Rule(lowest=1, highest=31)] | None = None
    buyer_reference: Annotated[str, Rule(longest=100, check=buyer_reference)] | None = None
    purchase_order: Annotated[str, Rule(longest=100)] | None = None
    tax_rate: Percentage | None = None
    region: Region | None = None
    tax_treatment: TaxTreatment | None = None
    tax_category: Annotated[str, Rule(filled=True, longest=30, check=validate_slug)] | None = None
    tax_reason: Annotated[str, Rule(longest=300)] | None = None
    payment_terms_days: Annotated[int, Rule(lowest=0, highest=365)] | None = None
    corrections: Annotated[str, Rule(choices=("", *Corrections.values))] | None = None
    zero_invoices: Annotated[str, Rule(choices=("", *ZeroInvoices.values))] | None = None
    second_factor: bool | None = None
    members_see_own: bool | None = None
    language: Annotated[str, Rule(choices=Language.values)] | None = None
    plan: str | None = None
    plan_from: Moment | None = None
    phases: list[PhaseEntry] = key(name="phase", default_factory=list)
    accounts: list[AccountEntry] = key(default_factory=list)
    members: list[MemberEntry] = key(name="member", default_factory=list)
    contacts: list[ContactEntry] = key(name="contact", default_factory=list)
    wallets: list[WalletEntry] = key(name="wallet", default_factory=list)
    quotas: list[QuotaEntry] = key(name="quota", default_factory=list)
    limits: list[LimitEntry] = key(name="limit", default_factory=list)
    close: CloseEntry | None = None
    payer: Annotated[str, Rule(longest=50)] | None = None  # "": the tenant pays for itself
    payer_from: date | None = None
    payer_until: date | None = None

    @property
    def identity(self) -> str:
        return self.slug

    @classmethod
    def complete(cls, table: Table, values: dict[str, Any]) -> None:
        if "plan_from" in values and "plan" not in values:
            table.wrong("plan_from", "says from when a plan applies, but `plan` is missing.")
        phases = values.get("phases", [])
        if phases and "plan" in values:
            table.wrong("plan", "is said beside phases, which say the plans; leave one of them out.")
        if phases and len(phases) == len(table.data["phase"]):
            values["phases"] = _dated(phases, table.errors)
        _check_payer(table, values)

    def write(self) -> Tenant:
        """The tenant with its people and policies. Raises ConfigError, PolicyError and ScheduleError."""
        tenant = Tenant.objects.filter(slug=self.slug).first()
        if tenant is None and self.name is None:
            raise ConfigError("name is missing; it is what invoices are addressed to.")
        tenant = tenant or Tenant(slug=self.slug)
        columns = self.columns("plan", "plan_from", "payer", "payer_from", "payer_until")
        if refusal := taxes.refusal(tenant, columns):
            raise ConfigError(refusal)
        tenant = save(tenant, columns)
        self.write_policies(tenant)
        if self.close is not None:
            self.close.write(tenant)
        for member in sorted(self.members, key=lambda member: member.role != Role.OWNER):
            member.write(tenant)  # new owners first: a tenant always keeps one
        return tenant

    def write_payer(self, tenant: Tenant) -> None:
        """Have it be paid for so; applied again, nothing changes. Raises PayerError."""
        if self.payer is None:
            return
        rows = [
            row for row in tenant.payers.select_related("payer").order_by("since") if row.until != row.since
        ]
        if not self.payer:
            for row in reversed(rows):  # one that begins later never pays; the one that pays on that day ends
                if self.payer_from is not None and (row.until is None or row.until > self.payer_from):
                    end_payer(row=row, on=self.payer_from)
            return
        payer = Tenant.objects.filter(slug=self.payer).first()
        if payer is None:
            raise PayerError(f"payer is {quoted(self.payer)}, which neither the file nor the database has.")
        since = self.payer_from
        if since is None:
            if not rows or rows[-1].payer != payer:
                raise PayerError(f"payer_from is missing; say from which day {payer.slug} pays.")
            since = rows[-1].since
        pay_for(payer=payer, tenant=tenant, since=since, until=self.payer_until)

    def write_subscription(self, tenant: Tenant, plans: Collection[str]) -> None:
        """Have the tenant be on its plan; of `plans`, which the file has, one may have been refused already."""
        if self.phases:
            _write_phases(tenant, self.phases)
        if not self.plan:
            return
        plan = Plan.objects.filter(name=self.plan).first()
        if plan is None:
            if self.plan in plans:
                return
            raise ConfigError(f"plan is {quoted(self.plan)}, {missing(Plan)}.")
        since = instant(self.plan_from, tenant.zone)
        if since is None:
            rows = tenant.subscriptions.select_related("plan").order_by("-since")
            if any(subscription.plan == plan for subscription in rows):
                return
            if other := rows.first():
                raise ConfigError(
                    f"it is on plan {other.plan}; say with plan_from from when plan {plan} applies."
                )
            since = _beginning(plan, tenant)
        subscriptions.subscribe(tenant=tenant, plan=plan, since=since)


def _check_payer(table: Table, values: Mapping[str, Any]) -> None:
    if "payer" not in table.data:
        for name in ("payer_from", "payer_until"):
            if name in table.data:
                table.wrong(name, "is said, but `payer` is missing: write who pays.")
    elif values.get("payer") == "":
        if "payer_from" not in values:
            table.wrong(
                "payer_from", 'is missing; with payer = "" it says from when the tenant pays for itself.'
            )
        if "payer_until" in values:
            table.wrong("payer_until", 'does not go with payer = "", which has no end.')


def _dated(phases: Sequence[PhaseEntry], errors: list[str]) -> list[PhaseEntry]:
    """Each with its beginning: its own, or where the days of the phase before end."""
    dated: list[PhaseEntry] = []
    ends: date | None = None
    for phase in phases:
        since = phase.since or ends
        if since is None:
            errors.append(f"{phase.label}: from is missing; write it, or `days` in the phase before.")
        elif phase.since is not None and ends is not None:
            errors.append(
                f"{phase.label}: from is said, and the phase before has `days`; leave one of them out."
            )
        if phase.days is not None and isinstance(since, datetime):
            errors.append(f"{phase.label}: days counts from a day; write `from` as a date.")
        counted = phase.days is not None and type(since) is date
        ends = since + timedelta(days=phase.days or 0) if since is not None and counted else None
        dated.append(phase.replaced(since=since))
    if ends is not None:
        errors.append(
            f"{phases[-1].label}: days does not go with the last phase, which holds until another follows."
        )
    return dated


def _write_phases(tenant: Tenant, phases: Sequence[PhaseEntry]) -> None:
    """Have the tenant be on these plans from the first phase on. Raises PlanError where it cannot be."""
    plans = {plan.name: plan for plan in Plan.objects.filter(name__in={phase.plan for phase in phases})}
    dated = []
    for phase in phases:
        if phase.plan not in plans:
            raise PlanError(f"plan is {quoted(phase.plan)}, which neither the file nor the database has.")
        if since := instant(phase.since, tenant.zone):
            dated.append((plans[phase.plan], since))
    for (_, before), (plan, since) in pairwise(dated):
        if since <= before:
            raise PlanError(f"The phase of plan {plan} would begin before the one that it follows.")
    subscriptions.set_phases(tenant=tenant, phases=dated)


def _beginning(plan: Plan, tenant: Tenant) -> datetime:
    first = plan.versions.order_by("effective_from").values_list("effective_from", flat=True).first()
    if first is None:
        raise ConfigError(f"plan {plan} has no version yet; say with plan_from from when it applies.")
    return instant(first, tenant.zone)
