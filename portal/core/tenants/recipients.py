"""Whom mails about a tenant's keys and webhooks go to, and those about the operators' own."""

from __future__ import annotations

from portal.core.tenants.models import OperatorRole, Role, User


def owner_addresses(tenant_id: int | None) -> list[str]:
    """The addresses of the tenant's owners; without a tenant those of the operators who are admins."""
    people = User.objects.filter(is_active=True).exclude(email="")
    people = (
        people.filter(operator_role=OperatorRole.ADMIN)
        if tenant_id is None
        else people.filter(memberships__tenant=tenant_id, memberships__role=Role.OWNER)
    )
    return sorted(people.values_list("email", flat=True))
