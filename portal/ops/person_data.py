"""All that stands under one person's name, for that person: without secrets, and without what concerns others.

A person with an account has an e-mail address; one who only runs jobs has the scheduler's user name in one tenant.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import time
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any
from zipfile import ZIP_DEFLATED, ZipFile

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from allauth.usersessions.models import UserSession
from django.contrib.admin.models import LogEntry
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from billing.documents.csv import Cell, instant, rows_to_csv
from billing.models import (
    BilledJob,
    BillingContact,
    Notice,
    NoticeDelivery,
    NoticePreference,
    OperatorDelivery,
    OperatorSubscription,
    Quota,
    QuotaBlock,
    RatedJob,
    SealedMonth,
    ServiceCredit,
    SignUp,
    Wallet,
    WalletEntry,
    WasteFinding,
)
from clusters.models import AccountBlock, Act
from portal.api.models import ApiKey
from portal.core.audit.models import AuditEntry
from portal.core.tenants.models import (
    AccountMail,
    Exclusion,
    Invitation,
    Membership,
    Ownership,
    SupportView,
    TenantNote,
    User,
)
from portal.core.webhooks.models import Webhook
from portal.ops.cli import as_json
from portal.ops.logs import hidden
from portal.ops.whole_files import private_file

JOBS = (
    "tenant__slug", "cluster", "account", "job_id", "name", "user", "queue", "qos", "state", "gpu_model", "gpus",
    "submitted", "started", "ended",
)  # fmt: skip
NOT_HERE = "jobs_not_here_are_of_months"
"""The section of months whose jobs stand in the files of sealed months alone."""

TIMES = {"submitted", "started", "ended"}
CHUNK = 500  # rows that are held at a time, some with the text of an e-mail


def heading(column: str) -> str:
    """Of `tenant__slug` and `account__cluster__name`: tenant and cluster."""
    *objects, name = column.split("__")
    return objects[-1] if objects else name


@dataclass(frozen=True, slots=True)
class Section:
    """Rows that stand under the person's name, and the columns of them that concern nobody else and open nothing."""

    name: str
    rows: QuerySet[Any]
    columns: tuple[str, ...]
    order: tuple[str, ...] = ("pk",)

    def values(self) -> Iterator[dict[str, Any]]:
        """E-mails without the keys of their links, which anyone with the file could use."""
        for row in self.rows.order_by(*self.order).values(*self.columns).iterator(chunk_size=CHUNK):
            yield {
                heading(name): hidden(value) if name in {"subject", "text"} else value
                for name, value in row.items()
            }


def of_account(person: User) -> list[Section]:
    """What stands under the e-mail address of an account."""
    email = person.email
    return [
        _section("account", User.objects.filter(pk=person.pk), """email first_name last_name language operator_role
            is_active date_joined last_login"""),
        _section("addresses", EmailAddress.objects.filter(user=person), "email verified primary"),
        _section("memberships", Membership.objects.filter(user=person), "tenant__slug role scheduler_users through"),
        _section("second_factors", Authenticator.objects.filter(user=person), "type created_at last_used_at"),
        _section("providers", SocialAccount.objects.filter(user=person), "provider uid date_joined last_login"),
        _section("sessions", UserSession.objects.filter(user=person), "created_at last_seen_at ip user_agent"),
        _section("api_keys", ApiKey.objects.filter(maker=person), """tenant__slug name is_service scopes created_at
            expires_at revoked_at used_at used_from"""),
        _section("webhooks", Webhook.objects.filter(maker=person), "tenant__slug name created_at"),
        _section("preferences", NoticePreference.objects.filter(membership__user=person), """tenant__slug digest_at
            quiet_from quiet_until timezone budgets receipts"""),
        _section("subscriptions", OperatorSubscription.objects.filter(user=person), """topics tenants digest digest_at
            quiet_from quiet_until timezone"""),
        _section("invitations", Invitation.objects.filter(email=email), """tenant__slug role created_at expires_at
            accepted_at revoked_at"""),
        _section("sign_ups", SignUp.objects.filter(Q(user=person) | Q(email=email)), """tenant__slug email state
            asked_at decided_at"""),
        _section("exclusions", Exclusion.objects.filter(email=email), "tenant__slug"),
        _section("contact_of", BillingContact.objects.filter(email=email), """tenant__slug invoices reminders receipts
            budgets"""),
        _section("account_mails", AccountMail.objects.filter(to=email), "kind created_at sent_at"),
        _section("notices", Notice.objects.filter(to__contains=[email]), "tenant__slug kind sent_at subject text"),
        _section("deliveries", NoticeDelivery.objects.filter(user=person), "tenant__slug sent_at subject text"),
        _section("operator_deliveries", OperatorDelivery.objects.filter(user=person), "sent_at subject"),
        _section("notes_written", TenantNote.objects.filter(author=email), "tenant__slug created_at"),
        _section("support_views", SupportView.objects.filter(viewer=email), "tenant__slug reason begun_at ended_at"),
        _section("administration", LogEntry.objects.filter(user=person), "action_time action_flag"),
        _section("changes", AuditEntry.objects.filter(who=email), "at table key operation through why"),
    ]  # fmt: skip


def of_names(names: dict[int, list[str]]) -> list[Section]:
    """What stands under user names of the scheduler, by tenant: the same name is somebody else's in another one."""
    chosen = jobs = Q(pk__in=[])
    for tenant, users in names.items():
        chosen |= Q(tenant=tenant, user__in=users)
        # An index has a tenant's runs, another its sums of meters, and none has both.
        jobs |= Q(Q(tenant=tenant, meter="") | Q(tenant=tenant) & ~Q(meter=""), user__in=users)
    wallets = Wallet.objects.filter(chosen)
    entries = WalletEntry.objects.filter(wallet__in=wallets).annotate(unit=F("wallet__unit"))
    blocks = AccountBlock.objects.annotate(began_at=F("blocked_by__intended_at"))
    return [
        _section("wallets", wallets, "tenant__slug user unit balance opened_at"),
        _section("wallet_entries", entries, "tenant__slug unit side amount day at"),
        _section("budgets", Quota.objects.filter(chosen), """tenant__slug name user account measure amount unit every
            created_at ended_at"""),
        _section("budget_blocks", QuotaBlock.objects.filter(chosen), """tenant__slug account__cluster__name
            account__name user state began_at ended_at"""),
        _section("account_blocks", _of_accounts(blocks, names, "began_at"), """cluster__name account user began_at
            ended_at"""),
        _section("acts", _of_accounts(Act.objects.all(), names, "intended_at"), """cluster__name account user kind
            intended_at ended_at outcome"""),
        _section("idle_jobs", WasteFinding.objects.filter(chosen), """tenant__slug user job_id job_name began_at
            ended_at"""),
        _section("service_credits", ServiceCredit.objects.filter(chosen), """tenant__slug user job_id job_name
            failed_at"""),
        _section("billed_jobs", BilledJob.objects.filter(chosen), """tenant__slug cluster account job_id name user state
            submitted started ended"""),
        _section(NOT_HERE, SealedMonth.objects.exclude(dropped_at=None), "month dropped_at"),
        Section("jobs", RatedJob.objects.filter(jobs), JOBS, order=("tenant_id", "shown_at", "record_id")),
    ]  # fmt: skip


def _of_accounts(rows: QuerySet[Any], names: dict[int, list[str]], moment: str) -> QuerySet[Any]:
    """Those of these users in accounts that their tenant owned at the moment of the row."""
    chosen = Q(pk__in=[])
    for tenant, users in names.items():
        owned = Ownership.objects.filter(
            Q(since=None) | Q(since__lte=OuterRef(moment)),
            Q(until=None) | Q(until__gt=OuterRef(moment)),
            tenant=tenant,
            account__cluster=OuterRef("cluster"),
            account__name=OuterRef("account"),
        )
        chosen |= Q(Exists(owned), user__in=users)
    return rows.filter(chosen)


def of_person(person: User) -> list[Section]:
    """Of an account, with the jobs of the names that its memberships say."""
    rows = Membership.objects.filter(user=person).values_list("tenant_id", "scheduler_users")
    return [*of_account(person), *of_names({pk: names for pk, names in rows if names})]


def _section(name: str, rows: QuerySet[Any], columns: str) -> Section:
    return Section(name, rows, tuple(columns.split()))


def write(parts: list[Section], file: Path) -> dict[str, int]:
    """Into a file that only we can read, as `pack` says."""
    with private_file(file) as part, part.open("wb") as into:
        return pack(parts, into)


def pack(parts: list[Section], file: IO[bytes]) -> dict[str, int]:
    """A ZIP of `person.json` and `jobs.csv`, row by row; how many rows of each section."""
    with ZipFile(file, "w", ZIP_DEFLATED) as archive:
        with TextIOWrapper(archive.open("person.json", "w", force_zip64=True), "utf-8") as person:
            counts = _write_json([section for section in parts if section.name != "jobs"], person)
        counts["jobs"] = 0

        def lines() -> Iterator[list[Cell]]:
            for section in parts:
                for row in section.values() if section.name == "jobs" else ():
                    counts["jobs"] += 1
                    yield [instant(value) if name in TIMES else value for name, value in row.items()]

        with archive.open("jobs.csv", "w", force_zip64=True) as table:
            table.writelines(rows_to_csv([heading(name) for name in JOBS], lines()))
    return counts


def _write_json(parts: list[Section], file: IO[str]) -> dict[str, int]:
    """An object with a list of each section, one row a line."""
    counts = {section.name: 0 for section in parts}
    for place, section in enumerate(parts):
        file.write(f'{"," if place else "{"}\n"{section.name}": [')
        for row in section.values():
            file.write(",\n" if counts[section.name] else "\n")
            file.write(json.dumps(row, default=_text, ensure_ascii=False))
            counts[section.name] += 1
        file.write("]")
    file.write("\n}\n")
    return counts


def _text(value: object) -> str:
    return value.isoformat() if isinstance(value, time) else as_json(value)
