"""`create_api_key USER --name NAME --scope SCOPE…`: a key of the REST API, shown once."""

from __future__ import annotations

from datetime import UTC, datetime, time
from typing import Any

from django.core.management.base import CommandParser

from portal.api import keys
from portal.api.keys import KeyRefusedError
from portal.api.parameters import parse_day
from portal.api.scopes import CLUSTER_SCOPES, OPERATOR_SCOPES, TENANT_SCOPES
from portal.core.tenants.models import Project, Tenant, User
from portal.ops.cli import Answer, BadInputError, OperatorCommand
from portal.ops.lookups import the_cluster


class Command(OperatorCommand):
    help = "Make a key of the REST API in the name of a user. Its secret is printed once."
    refusals = (KeyRefusedError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("user", help="e-mail address of whoever it belongs to")
        parser.add_argument("--name", required=True, help="what uses the key")
        parser.add_argument(
            "--scope",
            action="append",
            required=True,
            choices=[
                *dict.fromkeys((*TENANT_SCOPES, *OPERATOR_SCOPES, *CLUSTER_SCOPES))  # some are of both
            ],
            help="what it may do; give it several times",
        )
        parser.add_argument("--tenant", help="slug; without it the key is an operator's")
        parser.add_argument("--project", help="the only project that it reads")
        parser.add_argument("--cluster", help="of a key with jobs:check or jobs:reserve: its only cluster")
        parser.add_argument("--service", action="store_true", help="valid even if the user leaves the tenant")
        parser.add_argument(
            "--expires", metavar="YYYY-MM-DD", help="the first day on which it is not valid (UTC)"
        )

    def answer(
        self,
        *,
        user: str,
        name: str,
        scope: list[str],
        tenant: str | None,
        project: str | None,
        cluster: str | None,
        service: bool,
        expires: str | None,
        **_: Any,
    ) -> Answer:
        maker = User.objects.filter(email=user.lower()).first()
        if maker is None:
            raise BadInputError(f"There is no user {user}.")
        owner = Tenant.objects.filter(slug=tenant).first() if tenant else None
        if tenant and owner is None:
            raise BadInputError(f"There is no tenant {tenant}.")
        of_project = Project.objects.filter(tenant=owner, name=project).first() if project else None
        if project and of_project is None:
            raise BadInputError(f"{tenant} has no project {project}.")
        new = keys.make(
            maker=maker,
            tenant=owner,
            name=name,
            scopes={*scope},
            project=of_project,
            cluster=the_cluster(cluster) if cluster else None,
            is_service=service,
            moment=datetime.now(UTC),
            expires_at=_end(expires) if expires else None,
        )
        text = f"{new.secret}\nKeep it: it is not shown again."
        return Answer({"prefix": new.key.prefix, "secret": new.secret}, text)


def _end(text: str) -> datetime:
    try:
        return datetime.combine(parse_day(text), time.min, UTC)
    except ValueError as error:
        raise BadInputError(f"--expires: {error}") from None
