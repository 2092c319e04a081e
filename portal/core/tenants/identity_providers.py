"""Which identity providers there are, and what they give: set by operators with a configuration file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from allauth.socialaccount.models import SocialAccount
from django.db import transaction

from portal.core.tenants.models import IdentityGrant, IdentityProvider, Role, Tenant
from portal.core.tenants.single_sign_on import SignOnError
from portal.core.vault import VaultError, seal


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Whoever meets all that is not empty has the role in the tenant."""

    tenant: Tenant
    role: Role
    domain: str = ""
    claim: str = ""
    group: str = ""


@transaction.atomic
def put_provider(
    *, name: str, columns: Mapping[str, Any], secret: str | None, grants: Collection[Grant] | None
) -> IdentityProvider:
    """Make it, or have it be so; None leaves secret and grants as they are. Said again, nothing changes.

    With another address nobody is linked to it any more: its people are others. Raises SignOnError for a secret that
    was entered for another address.
    """
    row = IdentityProvider.objects.select_for_update().filter(name=name).first() or IdentityProvider(
        name=name
    )
    is_new, before = row.pk is None, row.url
    differing = {column: value for column, value in columns.items() if getattr(row, column) != value}
    moved = not is_new and "url" in differing
    if moved and secret is None and row.client_secret:
        raise SignOnError("secret-again", url=before)
    for column, value in differing.items():
        setattr(row, column, value)
    if not row.domains:
        raise SignOnError("domains-missing", provider=name)
    try:
        if secret is not None and row.client_secret.reveal() != secret:
            row.client_secret = seal(secret)
            differing["client_secret"] = secret
    except VaultError as error:
        raise SignOnError("no-keys", why=error) from None
    if is_new or differing:
        row.save()
    if moved:
        SocialAccount.objects.filter(provider=name).delete()
    if grants is not None:
        _set_grants(row, grants)
    return row


def _set_grants(row: IdentityProvider, grants: Collection[Grant]) -> None:
    """Those that stay are not written again."""
    wanted = {(grant.tenant.pk, grant.domain, grant.claim, grant.group): grant.role for grant in grants}
    for old in row.grants.order_by("pk"):
        role = wanted.pop((old.tenant_id, old.domain, old.claim, old.group), None)
        if role is None:
            old.delete()
        elif old.role != role:
            old.role = role
            old.save(update_fields=["role"])
    for (tenant, domain, claim, group), role in wanted.items():
        IdentityGrant.objects.create(
            provider=row, tenant_id=tenant, domain=domain, claim=claim, group=group, role=role
        )
