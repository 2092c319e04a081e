"""Tenants with their people, the plans that they are on, the accounts that they own, and who pays for whom."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from rest_framework import serializers

from billing.models import Payer, Subscription
from portal.api import parameters
from portal.api.fields import IdField, MomentField
from portal.api.resources.operators.endpoint import CLUSTER, TENANT, OperatorEndpoint, tenant_of
from portal.core.tenants.models import Membership, Ownership, Tenant

COLUMNS = (
    *("slug", "name", "timezone", "anchor_day", "address", "postcode", "city", "country", "region"),
    *("vat_id", "email", "electronic_address", "buyer_reference", "purchase_order", "tax_rate"),
    *("tax_treatment", "tax_category", "tax_reason", "payment_terms_days", "corrections", "zero_invoices"),
)
"""Of a tenant, as a file for `apply` calls them."""


class TenantSerializer(serializers.ModelSerializer[Tenant]):
    """Who is billed. The fields are those of `[[tenant]]` in a file for `apply`."""

    tax_rate = serializers.SerializerMethodField(help_text="Per cent, a decimal string.")

    class Meta:
        model = Tenant
        fields = COLUMNS

    def get_tax_rate(self, tenant: Tenant) -> str:
        return f"{tenant.tax_rate.normalize():f}"


class Tenants(OperatorEndpoint):
    """All tenants, by slug."""

    serializer = TenantSerializer
    lists = True
    parameters = (parameters.text("slug", "Its slug.", longest=50), *parameters.LISTS)

    def get(self, request: Any) -> HttpResponse:
        del request
        return self.page(self.narrowed(Tenant.objects.all(), slug="slug"), order=("slug",))


class OneTenant(OperatorEndpoint):
    """One tenant, by its slug."""

    serializer = TenantSerializer

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        return self.one(tenant_of(name))


class MemberSerializer(serializers.ModelSerializer[Membership]):
    """A person's role in the tenant."""

    email = serializers.CharField(source="user.email")

    class Meta:
        model = Membership
        fields = ("email", "role")


class Members(OperatorEndpoint):
    """The people of a tenant, by e-mail address."""

    serializer = MemberSerializer
    lists = True
    parameters = parameters.LISTS

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        rows = Membership.objects.filter(tenant=tenant_of(name)).select_related("user")
        return self.page(rows, order=("user__email", "pk"))


class SubscriptionSerializer(serializers.ModelSerializer[Subscription]):
    """That the tenant is on a plan for a time."""

    plan = serializers.CharField(source="plan.name")
    since = MomentField()
    until = MomentField(allow_null=True, help_text="Null: until another plan follows.")

    class Meta:
        model = Subscription
        fields = ("plan", "since", "until")


class Subscriptions(OperatorEndpoint):
    """The plans of a tenant in time."""

    serializer = SubscriptionSerializer
    lists = True
    parameters = parameters.LISTS

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        rows = Subscription.objects.filter(tenant=tenant_of(name)).select_related("plan")
        return self.page(rows, order=("since", "pk"))


class OwnershipSerializer(serializers.ModelSerializer[Ownership]):
    """That an account of a cluster belongs to a tenant for a time."""

    id = IdField("own")
    cluster = serializers.CharField(source="account.cluster.name")
    account = serializers.CharField(source="account.name")
    tenant = serializers.CharField(source="tenant.slug")
    project = serializers.CharField(source="project.name", help_text="Its cost center.")
    since = MomentField(allow_null=True, help_text="Null: from the beginning.")
    until = MomentField(allow_null=True, help_text="Null: with no end.")

    class Meta:
        model = Ownership
        fields = ("id", "cluster", "account", "tenant", "project", "since", "until")


class Ownerships(OperatorEndpoint):
    """Which account of a cluster belongs to which tenant, when."""

    serializer = OwnershipSerializer
    lists = True
    parameters = (
        CLUSTER,
        parameters.text("account", "The scheduler's name of an account.", longest=255),
        TENANT,
        *parameters.LISTS,
    )

    def rows(self) -> Any:
        return Ownership.objects.select_related("account__cluster", "tenant", "project")

    def get(self, request: Any) -> HttpResponse:
        del request
        rows = self.narrowed(
            self.rows(), cluster="account__cluster__name", account="account__name", tenant="tenant__slug"
        )
        return self.page(rows, order=("account_id", "pk"))


class PayerSerializer(serializers.ModelSerializer[Payer]):
    """That a tenant pays for what another one uses, on days of the latter's zone."""

    id = IdField("pay")
    tenant = serializers.CharField(source="tenant.slug", help_text="Who uses.")
    payer = serializers.CharField(source="payer.slug", help_text="Whose invoices it goes on.")

    class Meta:
        model = Payer
        fields = ("id", "tenant", "payer", "since", "until")


class Payers(OperatorEndpoint):
    """Who pays for whom, and when. Days are of the zone of the tenant that uses."""

    serializer = PayerSerializer
    lists = True
    parameters = (
        TENANT,
        parameters.text("payer", "Slug of the tenant that pays.", longest=50),
        *parameters.LISTS,
    )

    def rows(self) -> Any:
        return Payer.objects.select_related("tenant", "payer")

    def get(self, request: Any) -> HttpResponse:
        del request
        rows = self.narrowed(self.rows(), tenant="tenant__slug", payer="payer__slug")
        return self.page(rows, order=("since", "pk"))
