"""`release_quotas TENANT --until T --why …`: no quota of the tenant blocks anything until then."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

from django.core.management.base import CommandParser

from billing.quotas import blocks
from billing.quotas.terms import QuotaError
from portal.core.audit import acting_as
from portal.ops.cli import Answer, OperatorCommand, instant_text, moment
from portal.ops.lookups import the_tenant


class Command(OperatorCommand):
    help = "Lift what a tenant's quotas block, and block nothing for them until then."
    refusals: ClassVar[tuple[type[Exception], ...]] = (QuotaError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", metavar="TENANT", help="the tenant's slug")
        parser.add_argument("--until", metavar="T", required=True, help="such as 2026-03-31T18:00:00Z")
        parser.add_argument("--why", required=True, help="the reason, which is kept")

    def answer(self, **options: Any) -> Answer:
        tenant = the_tenant(options["tenant"])
        now = datetime.now(UTC).replace(microsecond=0)
        with acting_as("release_quotas", why=options["why"]):
            row = blocks.release_quotas(
                tenant=tenant,
                until=moment(options["until"], tenant.zone),
                reason=options["why"],
                by="release_quotas",
                moment=now,
            )
        data = {"tenant": tenant.slug, "until": row.until, "reason": row.reason}
        text = f"No quota of {tenant.slug} blocks anything until {instant_text(row.until)}."
        return Answer(data, f"{text} What is blocked now is free within a minute.")
