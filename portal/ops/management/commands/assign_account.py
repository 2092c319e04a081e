"""`assign_account CLUSTER ACCOUNT TENANT`: say whose an account is, and from when."""

from __future__ import annotations

from typing import Any, ClassVar

from django.core.management.base import CommandParser
from django.db import transaction

from billing.rating import engine
from clusters.models import Account
from portal.core.audit import acting_as
from portal.core.tenants import ownership
from portal.core.tenants.models import Ownership
from portal.core.tenants.ownership import OwnershipConflictError
from portal.ops.cli import Answer, BadInputError, OperatorCommand, Progress, instant_text, moment
from portal.ops.lookups import the_cluster, the_tenant


class Command(OperatorCommand):
    help = "Give a scheduler's account to a tenant, from a moment on, and rate its usage again."
    refusals: ClassVar = (OwnershipConflictError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("cluster", metavar="CLUSTER")
        parser.add_argument("account", metavar="ACCOUNT")
        parser.add_argument("tenant", metavar="TENANT", help="the tenant's slug")
        parser.add_argument(
            "--project", metavar="P", default="", help="cost centre; default: the account's name"
        )
        when = "a date (midnight in the tenant's zone) or a moment with its offset"
        parser.add_argument("--since", metavar="T", help=f"{when}; default: from the beginning")
        parser.add_argument("--until", metavar="T", help=f"{when}; default: for ever")

    def answer(
        self,
        *,
        cluster: str,
        account: str,
        tenant: str,
        project: str,
        since: str | None,
        until: str | None,
        **_: Any,
    ) -> Answer:
        owner = the_tenant(tenant)
        of = the_cluster(cluster)
        begin = moment(since, owner.zone) if since else None
        end = moment(until, owner.zone) if until else None
        if begin is not None and end is not None and end <= begin:
            raise BadInputError("--until has to be later than --since.")
        with acting_as(f"assign_account {cluster} {account}"), transaction.atomic():
            row, new = Account.objects.get_or_create(cluster=of, name=account)
            assignment = ownership.assign(account=row, tenant=owner, project=project, since=begin, until=end)
            with Progress("Usage rated again") as progress:
                engine.rate_accounts([row.pk], progress=progress.add)
        return Answer(*_summary(row, assignment, rated=progress.done, new=new))


def _summary(account: Account, assignment: Ownership, *, rated: int, new: bool) -> tuple[dict[str, Any], str]:
    data = {
        "account": str(account),
        "tenant": assignment.tenant.slug,
        "project": assignment.project.name,
        "since": assignment.since,
        "until": assignment.until,
        "rated_records": rated,
        "new_account": new,
    }
    since = f"since {instant_text(assignment.since)}" if assignment.since else "from the beginning"
    until = f"until {instant_text(assignment.until)}" if assignment.until else "for ever"
    text = (
        f"{account} belongs to {assignment.tenant.slug} (project {assignment.project.name}) {since}, {until}."
    )
    if new:
        return data, f"{text}\nNo usage of {account} has been read yet."
    return data, f"{text}\nRated again: {rated:,} {'record' if rated == 1 else 'records'}."
