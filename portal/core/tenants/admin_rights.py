"""What operators may do in Django's admin: the rights of their role, by table."""

from __future__ import annotations

from collections.abc import Mapping

from django.contrib.auth.backends import BaseBackend
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser

from portal.core.tenants.access import Right, rights_of
from portal.core.tenants.models import User

_TABLES: Mapping[Right, str] = {
    Right.TENANTS: "tenants.tenant tenants.project tenants.membership tenants.ownership billing.payer "
    "billing.subscription billing.billingaccount",
    Right.PLANS: "billing.plan billing.allowance billing.fee billing.commitment billing.discount",
    Right.CLOSES: "billing.pendingapproval",
    Right.CREDITS: "billing.invoice billing.manualline",
    Right.PAYMENTS: "billing.payment billing.paymentattempt billing.paymentrefund billing.gatewayevent billing.notice",
    Right.CLUSTERS: "clusters.cluster clusters.account",
    Right.IMPORTS: "clusters.quarantined",
}
"""Which tables each right lets an operator change, as far as the admin changes them; all others need SETTINGS."""

RIGHT_OF_TABLE = {table: right for right, tables in _TABLES.items() for table in tables.split()}
READ_BY = {"audit.auditentry": Right.AUDIT}


class OperatorRights(BaseBackend):
    """Answers the admin's questions; nobody signs in by it."""

    def has_perm(self, user_obj: AbstractBaseUser | AnonymousUser, perm: str, obj: object = None) -> bool:
        """Of "billing.change_plan": its table, and whether it is only looked at."""
        del obj
        if not isinstance(user_obj, User):
            return False
        app, _, rest = perm.partition(".")
        verb, _, table = rest.partition("_")
        name = f"{app}.{table}"
        need = READ_BY.get(name, Right.READ) if verb == "view" else RIGHT_OF_TABLE.get(name, Right.SETTINGS)
        return need in rights_of(user_obj)

    def has_module_perms(self, user_obj: AbstractBaseUser | AnonymousUser, app_label: str) -> bool:
        del app_label
        return isinstance(user_obj, User) and Right.READ in rights_of(user_obj)
