"""`archive_tenant SLUG --why REASON`: keep that a tenant has left, once all of it is billed and paid."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

from django.core.management.base import CommandParser

from billing.catalog.plans import PlanError
from billing.invoicing import offboarding
from portal.core.audit import acting_as
from portal.core.tenants.models import Tenant
from portal.core.tenants.ownership import OwnershipConflictError
from portal.ops.cli import Answer, BadInputError, OperatorCommand, RefusedError, moment
from portal.ops.lookups import the_tenant


class Command(OperatorCommand):
    help = "Archive a tenant that leaves. Its documents stay; what is left to do before that is listed."
    refusals: ClassVar[tuple[type[Exception], ...]] = (PlanError, OwnershipConflictError)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", metavar="SLUG")
        parser.add_argument("--why", metavar="REASON", default="", help="kept with the archive")
        parser.add_argument("--leave", action="store_true", help="first end its accounts and its plan")
        parser.add_argument("--at", metavar="T", help="when they end; now unless said")

    def answer(self, **options: Any) -> Answer:
        tenant = the_tenant(options["tenant"])
        now = datetime.now(UTC).replace(microsecond=0)
        at = moment(options["at"], tenant.zone) if options["at"] else now
        if at > now:
            raise BadInputError("--at lies in the future: say it when it has come.")
        ended = 0
        with acting_as("archive_tenant", why=options["why"]):
            if options["leave"]:
                ended = offboarding.end_services(tenant=tenant, at=at)
            try:
                archive = offboarding.archive_tenant(
                    tenant=tenant, by="archive_tenant", reason=options["why"], moment=now
                )
            except offboarding.ArchiveError as error:
                if not options["leave"]:
                    raise RefusedError(*error.sentences) from error
                lines = [f"{tenant.slug} has left; before it is archived:", *error.sentences]
                return Answer(_data(tenant, ended, None, error.sentences), "\n  ".join(lines), 1)
        return Answer(_data(tenant, ended, archive.at), f"{tenant.slug} is archived. Its invoices stay.")


def _data(
    tenant: Tenant, ended: int, archived_at: datetime | None, left: Sequence[str] = ()
) -> dict[str, Any]:
    return {
        "tenant": tenant.slug,
        "archived_at": archived_at,
        "accounts_ended": ended,
        "left": list(left),
    }
