"""All that stands under one person's name, for that person: without secrets, and without what concerns others.

A person with an account has an e-mail address; one who only runs jobs has the scheduler's user name in one tenant.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import time
from pathlib import Path
from typing import IO, Any
from zipfile import ZIP_DEFLATED, ZipFile

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from allauth.usersessions.models import UserSession
from django.contrib.admin.models import LogEntry
from django.db.models import Q, QuerySet

from billing.documents.csv import Cell, instant, rows_to_csv
from billing.models import (
    BillingContact,
    Notice,
    NoticeDelivery,
    NoticePreference,
    OperatorDelivery,
    OperatorSubscription,
    RatedJob,
    ServiceCredit,
    SignUp,
    Wallet,
    WasteFinding,
)
from portal.api.models import ApiKey
from portal.core.audit.models import AuditEntry
from portal.core.tenants.models import (
    AccountMail,
    Exclusion,
    Invitation,
    Membership,
    SupportView,
    Tenant,
    TenantNote,
    User,
)
from portal.core.webhooks.models import Webhook
from portal.ops.cli import as_json
from portal.ops.logs import hidden

JOBS = (
    "tenant__slug", "cluster", "account", "job_id", "name", "user", "queue", "qos", "state", "gpu_model", "gpus",
    "submitted", "started", "ended",
)  # fmt: skip
TIMES = {"submitted", "started", "ended"}
CHUNK = 5_000  # rows that are held at a time


@dataclass(frozen=True, slots=True)
class Section:
    """Rows that stand under the person's name, and the columns of them that concern nobody else and open nothing."""

    name: str
    rows: QuerySet[Any]
    columns: str

    def values(self) -> Iterator[dict[str, Any]]:
        """E-mails without the keys of their links, which anyone with the file could use."""
        for row in self.rows.order_by("pk").values(*self.columns.split()).iterator(chunk_size=CHUNK):
            yield {
                name.removesuffix("__slug"): hidden(value) if name in {"subject", "text"} else value
                for name, value in row.items()
            }


def of_account(person: User) -> list[Section]:
    """What stands under the e-mail address of an account."""
    email = person.email
    return [
        Section("account", User.objects.filter(pk=person.pk), """email first_name last_name language operator_role
            is_active date_joined last_login"""),
        Section("addresses", EmailAddress.objects.filter(user=person), "email verified primary"),
        Section("memberships", Membership.objects.filter(user=person), "tenant__slug role scheduler_users through"),
        Section("second_factors", Authenticator.objects.filter(user=person), "type created_at last_used_at"),
        Section("providers", SocialAccount.objects.filter(user=person), "provider uid date_joined last_login"),
        Section("sessions", UserSession.objects.filter(user=person), "created_at last_seen_at ip user_agent"),
        Section("api_keys", ApiKey.objects.filter(maker=person), """tenant__slug name is_service scopes created_at
            expires_at revoked_at used_at used_from"""),
        Section("webhooks", Webhook.objects.filter(maker=person), "tenant__slug name created_at"),
        Section("preferences", NoticePreference.objects.filter(membership__user=person), """tenant__slug digest_at
            quiet_from quiet_until timezone budgets receipts"""),
        Section("subscriptions", OperatorSubscription.objects.filter(user=person), """topics tenants digest digest_at
            quiet_from quiet_until timezone"""),
        Section("invitations", Invitation.objects.filter(email=email), """tenant__slug role created_at expires_at
            accepted_at revoked_at"""),
        Section("sign_ups", SignUp.objects.filter(Q(user=person) | Q(email=email)), """tenant__slug email state
            asked_at decided_at"""),
        Section("exclusions", Exclusion.objects.filter(email=email), "tenant__slug"),
        Section("contact_of", BillingContact.objects.filter(email=email), """tenant__slug invoices reminders receipts
            budgets"""),
        Section("account_mails", AccountMail.objects.filter(to=email), "kind created_at sent_at"),
        Section("notices", Notice.objects.filter(to__contains=[email]), "tenant__slug kind sent_at subject text"),
        Section("deliveries", NoticeDelivery.objects.filter(user=person), "tenant__slug sent_at subject text"),
        Section("operator_deliveries", OperatorDelivery.objects.filter(user=person), "sent_at subject"),
        Section("notes_written", TenantNote.objects.filter(author=email), "tenant__slug created_at"),
        Section("support_views", SupportView.objects.filter(viewer=email), "tenant__slug reason begun_at ended_at"),
        Section("administration", LogEntry.objects.filter(user=person), "action_time action_flag"),
        Section("changes", AuditEntry.objects.filter(who=email), "at table key operation through why"),
    ]  # fmt: skip


def of_names(names: dict[int, list[str]]) -> list[Section]:
    """What stands under user names of the scheduler, by tenant: the same name is somebody else's in another one."""
    chosen = Q(pk__in=[])
    for tenant, users in names.items():
        chosen |= Q(tenant=tenant, user__in=users)
    return [
        Section("wallets", Wallet.objects.filter(chosen), "tenant__slug user unit balance opened_at"),
        Section("idle_jobs", WasteFinding.objects.filter(chosen), """tenant__slug user job_id job_name began_at
            ended_at"""),
        Section("service_credits", ServiceCredit.objects.filter(chosen), "tenant__slug user job_id job_name failed_at"),
        Section("jobs", RatedJob.objects.filter(chosen), " ".join(JOBS)),
    ]  # fmt: skip


def sections(*, person: User | None, tenant: Tenant | None = None, user: str = "") -> list[Section]:
    """Of an account with the names that its memberships say, or of one name in one tenant."""
    if person is not None:
        rows = Membership.objects.filter(user=person).values_list("tenant_id", "scheduler_users")
        return [*of_account(person), *of_names({pk: names for pk, names in rows if names})]
    return of_names({tenant.pk: [user]} if tenant is not None else {})


def write(parts: list[Section], file: Path) -> dict[str, int]:
    """Into a file that only we can read, as `pack` says. No half file has its name."""
    part = file.with_name(f"{file.name}.part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as into:
        try:
            counts = pack(parts, into)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    part.replace(file)
    return counts


def pack(parts: list[Section], file: IO[bytes]) -> dict[str, int]:
    """A ZIP of `person.json` and `jobs.csv`; how many rows of each section."""
    with ZipFile(file, "w", ZIP_DEFLATED) as archive:
        small = {section.name: list(section.values()) for section in parts if section.name != "jobs"}
        archive.writestr("person.json", json.dumps(small, default=_text, ensure_ascii=False, indent=1))
        counts = {name: len(rows) for name, rows in small.items()} | {"jobs": 0}

        def lines() -> Iterator[list[Cell]]:
            for section in parts:
                for row in section.values() if section.name == "jobs" else ():
                    counts["jobs"] += 1
                    yield [instant(value) if name in TIMES else value for name, value in row.items()]

        with archive.open("jobs.csv", "w", force_zip64=True) as table:
            table.writelines(rows_to_csv([name.removesuffix("__slug") for name in JOBS], lines()))
    return counts


def _text(value: object) -> str:
    return value.isoformat() if isinstance(value, time) else as_json(value)
