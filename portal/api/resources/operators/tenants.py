"""Tenants with their people, and the plans that they are on."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.http import HttpResponse
from rest_framework import serializers

from billing.models import Subscription
from portal.api import parameters
from portal.api.bodies import Body
from portal.api.entry_fields import DayOrMoment, body_of, entry_of
from portal.api.fields import MomentField
from portal.api.problems import conflict, not_found
from portal.api.resources.operators.endpoint import OperatorEndpoint, WritingEndpoint, tenant_of
from portal.config_file.apply import REFUSALS
from portal.config_file.entries import fields_of
from portal.config_file.tenants import MemberEntry, TenantEntry
from portal.core.outbox import outbox
from portal.core.tenants import team
from portal.core.tenants.models import Corrections, Membership, TaxTreatment, Tenant, ZeroInvoices
from portal.languages import Language

COLUMNS = (
    *("slug", "name", "timezone", "anchor_day", "address", "postcode", "city", "country", "region"),
    *("vat_id", "email", "electronic_address", "buyer_reference", "purchase_order", "tax_rate"),
    *("tax_treatment", "tax_category", "tax_reason", "payment_terms_days", "corrections", "zero_invoices"),
    *("second_factor", "members_see_own", "language"),
)
"""Of a tenant, as a file for `apply` calls them."""


class TenantSerializer(serializers.ModelSerializer[Tenant]):
    """Who is billed. The fields are those of `[[tenant]]` in a file for `apply`."""

    tax_rate = serializers.SerializerMethodField(help_text="Per cent, a decimal string.")
    tax_treatment = serializers.ChoiceField(choices=[*TaxTreatment.values])
    corrections = serializers.ChoiceField(choices=["", *Corrections.values])
    zero_invoices = serializers.ChoiceField(choices=["", *ZeroInvoices.values])
    language = serializers.ChoiceField(choices=[*Language.values])

    class Meta:
        model = Tenant
        fields = COLUMNS

    def get_tax_rate(self, tenant: Tenant) -> str:
        return f"{Decimal(tenant.tax_rate).normalize():f}"


OTHERS = tuple(field.key for field in fields_of(TenantEntry) if field.key not in COLUMNS)


class TenantFields(body_of(TenantEntry, without=(*OTHERS, "slug"))):  # type: ignore[misc]  # those of the file
    """What PUT and PATCH say of a tenant; the address has its slug."""


class NewTenant(body_of(TenantEntry, without=OTHERS)):  # type: ignore[misc]  # those of the file
    """A tenant with its slug, which never changes."""


class TenantEndpoint(WritingEndpoint):
    scope = "ops:read"
    write_scope = "tenants:write"
    serializer = TenantSerializer
    refusals = REFUSALS

    def write(self, slug: str, values: dict[str, Any]) -> Tenant:
        """Have the tenant be so, as `apply` does; null is what holds where nothing is said."""
        filled = {name: _default(name) if value is None else value for name, value in values.items()}
        return entry_of(TenantEntry, filled | {"slug": slug}, label=f'tenant "{slug}"').write()


def _default(column: str) -> Any:
    default = getattr(Tenant(), column)
    return str(default) if column == "tax_rate" else default


class Tenants(TenantEndpoint):
    """All tenants, by slug. POST makes one."""

    lists = True
    parameters = (parameters.text("slug", "Its slug.", longest=50), *parameters.LISTS)
    request_serializer = NewTenant

    def get(self, request: Any) -> HttpResponse:
        del request
        return self.page(self.narrowed(Tenant.objects.all(), slug="slug"), order=("slug",))

    def post(self, request: Any) -> HttpResponse:
        del request
        values = self.body()
        slug = values.pop("slug")
        self.take_turn(f"{self.request.path}/{slug}")
        if Tenant.objects.filter(slug=slug).exists():
            raise conflict(f"There is a tenant {slug} already: change it by PUT or PATCH /tenants/{slug}.")
        return self.one(self.write(slug, values), status=201)


class OneTenant(TenantEndpoint):
    """One tenant, by its slug. PUT creates or replaces it, PATCH changes what is given."""

    request_serializer = TenantFields

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        return self.one(tenant_of(name))

    def put(self, request: Any, name: str) -> HttpResponse:
        del request
        row = Tenant.objects.select_for_update().filter(slug=name).first()
        if row is None:
            self.match_new()
        else:
            self.match(row)
        return self.one(self.write(name, dict.fromkeys(COLUMNS[1:]) | {"name": ""} | self.body()))

    def patch(self, request: Any, name: str) -> HttpResponse:
        del request
        self.match(Tenant.objects.select_for_update().get(slug=name))
        return self.one(self.write(name, self.body(partial=True)))


class MemberSerializer(serializers.ModelSerializer[Membership]):
    """A person's role in the tenant."""

    email = serializers.CharField(source="user.email")

    class Meta:
        model = Membership
        fields = ("email", "role", "scheduler_users")


class Members(OperatorEndpoint):
    """The people of a tenant, by e-mail address."""

    serializer = MemberSerializer
    lists = True
    parameters = parameters.LISTS

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        rows = Membership.objects.filter(tenant=tenant_of(name)).select_related("user")
        return self.page(rows, order=("user__email", "pk"))


class MemberFields(body_of(MemberEntry, without=("email",))):  # type: ignore[misc]  # those of the file
    """The role; the address has the person."""


class OneMember(WritingEndpoint):
    """One person in a tenant. PUT lets them in or changes their role, DELETE takes them out."""

    write_scope = "tenants:write"
    serializer = MemberSerializer
    request_serializer = MemberFields
    refusals = REFUSALS

    def found(self, name: str, email: str) -> Membership | None:
        rows = Membership.objects.select_related("user").select_for_update(of=("self",))
        return rows.filter(tenant=tenant_of(name), user__email=email.lower()).first()

    def member(self, name: str, email: str) -> Membership:
        member = self.found(name, email)
        if member is None:
            raise not_found()
        return member

    def get(self, request: Any, name: str, email: str) -> HttpResponse:
        del request
        return self.one(self.member(name, email))

    def put(self, request: Any, name: str, email: str) -> HttpResponse:
        del request
        before = self.found(name, email)
        if before is None:
            self.match_new()
        else:
            self.match(before)
        entry_of(MemberEntry, self.body() | {"email": email}, label="member").write(tenant_of(name))
        return self.one(self.member(name, email))

    def delete(self, request: Any, name: str, email: str) -> HttpResponse:
        del request
        member = self.member(name, email)
        self.match(member)
        team.remove_member(member=member)
        return HttpResponse(status=204)


class PhaseFields(Body):
    """A plan and from when it holds."""

    plan = serializers.CharField(max_length=50)
    days = serializers.IntegerField(
        required=False, min_value=1, max_value=36_500, write_only=True, help_text="Until the next one begins."
    )
    until = MomentField(read_only=True, allow_null=True, help_text="Null: until another plan follows.")

    def get_fields(self) -> dict[str, Any]:
        begins = DayOrMoment(
            required=False, source="since", help_text="A day of the tenant's zone, or a time."
        )
        return {"plan": serializers.CharField(), "from": begins} | super().get_fields()


class SubscriptionFields(Body):
    """The plans of a tenant in time, as `[[tenant.phase]]` in a file for `apply`."""

    phase = PhaseFields(many=True)


class Subscriptions(WritingEndpoint):
    """The plans of a tenant in time. PUT sets them from the first one's day on; usage is rated again."""

    write_scope = "tenants:write"
    serializer = SubscriptionFields
    request_serializer = SubscriptionFields
    refusals = REFUSALS

    def representation(self, row: Any, **context: Any) -> Any:
        del context
        rows = Subscription.objects.filter(tenant=row).select_related("plan").order_by("since")
        moments = MomentField()
        return {
            "phase": [
                {
                    "plan": phase.plan.name,
                    "from": moments.to_representation(phase.since),
                    "until": moments.to_representation(phase.until) if phase.until else None,
                }
                for phase in rows
            ]
        }

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        return self.one(tenant_of(name))

    def put(self, request: Any, name: str) -> HttpResponse:
        del request
        tenant = Tenant.objects.select_for_update(no_key=True).get(slug=name)
        self.match(tenant)
        phases = [
            {"from" if key == "since" else key: value for key, value in phase.items()}
            for phase in self.body()["phase"]
        ]
        if not phases:
            raise conflict("Name at least one plan: a tenant leaves by `archive_tenant`.")
        entry = entry_of(TenantEntry, {"slug": name, "phase": phases}, label=f'tenant "{name}"')
        entry.write_subscription(tenant, ())
        outbox.add("billing.tasks.rate_tenants", tenant_ids=[tenant.pk])
        return self.one(tenant)
