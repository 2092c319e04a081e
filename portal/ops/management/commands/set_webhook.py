"""`set_webhook NAME …`: have a webhook of a tenant, or of the operators, be so; or delete it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

from django.core.management.base import CommandParser

from portal.core.audit import acting_as
from portal.core.tenants.access import Action, Right, allowed_in, rights_of
from portal.core.tenants.models import Tenant, User
from portal.core.webhooks import addresses, endpoints
from portal.core.webhooks.addresses import WebhookError
from portal.core.webhooks.models import Webhook, WebhookState
from portal.excerpt import quoted
from portal.ops.cli import Answer, BadInputError, OperatorCommand
from portal.ops.lookups import the_tenant


class Command(OperatorCommand):
    help = "Make a webhook, or have it be so; or delete it. The secret of a new one is printed once."
    refusals: ClassVar[tuple[type[Exception], ...]] = (WebhookError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME", help="such as finance-export")
        parser.add_argument(
            "--tenant", metavar="TENANT", help="slug; without it the webhook is the operators'"
        )
        parser.add_argument("--url", help="where events go; begins with https://")
        parser.add_argument(
            "--type",
            dest="types",
            action="append",
            default=[],
            metavar="TYPE",
            help="of events, such as invoice.issued; repeat it; without it all",
        )
        parser.add_argument("--off", action="store_true", help="send nothing to it")
        parser.add_argument(
            "--maker", metavar="EMAIL", help="in whose name: an owner of the tenant, or an operator"
        )
        parser.add_argument("--delete", action="store_true", help="delete it with its deliveries")
        parser.add_argument("--why", default="", help="the reason, for the history")

    def answer(self, **options: Any) -> Answer:
        tenant = the_tenant(options["tenant"]) if options["tenant"] else None
        with acting_as("set_webhook", why=options["why"]):
            return _delete(tenant, options["name"]) if options["delete"] else _put(tenant, options)


def _put(tenant: Tenant | None, options: dict[str, Any]) -> Answer:
    name = options["name"]
    present = endpoints.of(tenant).filter(name=name).select_related("maker").first()
    if not options["url"]:
        raise BadInputError("Say with --url where events go, or with --delete that the webhook goes.")
    if options["maker"]:
        maker = _maker(tenant, options["maker"])
    elif present is not None:
        maker = present.maker
    else:
        raise BadInputError("It is new: say with --maker in whose name it is made.")
    target = addresses.resolve_in_time(options["url"], tenant=tenant.pk if tenant else None)
    saved = endpoints.put_webhook(
        tenant=tenant,
        name=name,
        target=target,
        types=options["types"],
        maker=maker,
        moment=datetime.now(UTC),
        is_active=not options["off"],
    )
    text = _line(saved.webhook)
    if saved.secret:
        text = f"{text}\n{saved.secret}\nKeep the secret: it is not shown again."
    return Answer(_data(saved.webhook) | {"secret": saved.secret or None}, text)


def _delete(tenant: Tenant | None, name: str) -> Answer:
    row = endpoints.of(tenant).filter(name=name).first()
    if row is None:
        whose = tenant.slug if tenant else "The operators"
        raise BadInputError(f"{whose} {'has' if tenant else 'have'} no webhook {quoted(name)}.")
    endpoints.delete_webhook(webhook=row)
    return Answer({"name": name, "deleted": True}, f"{name} is deleted, with its deliveries.")


def _maker(tenant: Tenant | None, email: str) -> User:
    """Whoever may keep such a webhook by the pages, too."""
    person = User.objects.filter(email=email.lower(), is_active=True).first()
    if person is None:
        raise BadInputError(f"There is no user {quoted(email)}.")
    may = (
        Right.SETTINGS in rights_of(person) if tenant is None else Action.MANAGE in allowed_in(tenant, person)
    )
    if not may:
        needed = "an operator with the role admin" if tenant is None else f"an owner of {tenant.slug}"
        raise BadInputError(f"{quoted(email)} is not {needed}.")
    return person


def _data(row: Webhook) -> dict[str, Any]:
    """By the names of the API."""
    return {
        "name": row.name,
        "url": row.url,
        "event_types": row.event_types,
        "active": row.state == WebhookState.ACTIVE,
        "state": row.state,
        "maker": row.maker.email,
    }


def _line(row: Webhook) -> str:
    types = ", ".join(row.event_types) or "all events"
    state = "" if row.state == WebhookState.ACTIVE else " Nothing is sent: it is turned off."
    return f"{row.name}: {types} go to {row.url}.{state}"
