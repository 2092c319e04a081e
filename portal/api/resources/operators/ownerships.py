"""Which account belongs to which tenant, and who pays for whom, when."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from rest_framework import serializers

from billing.catalog import third_party_payers
from billing.catalog.third_party_payers import PayerError
from billing.models import Payer
from clusters.models import Account
from portal.api import identifiers, parameters
from portal.api.bodies import Body
from portal.api.entry_fields import DayOrMoment
from portal.api.fields import DayField, IdField, MomentField
from portal.api.problems import bad_request, not_found
from portal.api.resources.operators.endpoint import (
    CLUSTER,
    TENANT,
    WritingEndpoint,
    cluster_in_body,
    tenant_in_body,
)
from portal.config_file.toml_values import instant
from portal.core.outbox import outbox
from portal.core.tenants import ownership
from portal.core.tenants.models import Ownership
from portal.core.tenants.ownership import OwnershipConflictError


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


class NewOwnership(Body):
    """Whose the account is from a moment on; who owns it then gives it up."""

    cluster = serializers.CharField(max_length=100)
    account = serializers.CharField(max_length=255, allow_blank=True, help_text="Made where there is none.")
    tenant = serializers.CharField(max_length=50)
    project = serializers.CharField(
        max_length=200, required=False, default="", allow_blank=True, help_text="Empty: the account's name."
    )
    since = DayOrMoment(required=False, allow_null=True, help_text="Null: from the beginning.")
    until = DayOrMoment(required=False, allow_null=True, help_text="Null: with no end.")


class OwnershipBorders(Body):
    since = DayOrMoment(required=False, allow_null=True, help_text="Null: from the beginning.")
    until = DayOrMoment(required=False, allow_null=True, help_text="Null: with no end.")


class OwnershipEndpoint(WritingEndpoint):
    write_scope = "tenants:write"
    serializer = OwnershipSerializer
    refusals = (OwnershipConflictError,)

    def rows(self) -> Any:
        return Ownership.objects.select_related("account__cluster", "tenant", "project")

    def rated_again(self, row: Ownership) -> None:
        outbox.add("billing.tasks.rate_accounts", account_ids=[row.account_id])


class Ownerships(OwnershipEndpoint):
    """Which account of a cluster belongs to which tenant, when. POST gives one to a tenant, from a moment on."""

    lists = True
    parameters = (
        CLUSTER,
        parameters.text("account", "The scheduler's name of an account.", longest=255),
        TENANT,
        *parameters.LISTS,
    )
    request_serializer = NewOwnership

    def get(self, request: Any) -> HttpResponse:
        del request
        rows = self.narrowed(
            self.rows(), cluster="account__cluster__name", account="account__name", tenant="tenant__slug"
        )
        return self.page(rows, order=("account_id", "pk"))

    def post(self, request: Any) -> HttpResponse:
        del request
        values = self.body()
        tenant, cluster = tenant_in_body(values["tenant"]), cluster_in_body(values["cluster"])
        since, until = (instant(values.get(name), tenant.zone) for name in ("since", "until"))
        if since is not None and until is not None and until <= since:
            sentence = "until has to be later than since."
            raise bad_request(sentence, ("/until", sentence))
        account, _ = Account.objects.get_or_create(cluster=cluster, name=values["account"])
        row = ownership.assign(
            account=account, tenant=tenant, project=values["project"], since=since, until=until
        )
        self.rated_again(row)
        return self.one(self.rows().get(pk=row.pk), status=201)


class OneOwnership(OwnershipEndpoint):
    """One ownership of an account. PATCH moves its borders, DELETE takes it back; usage is rated again."""

    request_serializer = OwnershipBorders

    def row(self, name: str) -> Ownership:
        """Locked; raises Ownership.DoesNotExist."""
        rows = self.rows().select_for_update(of=("self",))
        row: Ownership = rows.get(pk=identifiers.read("own", name))
        return row

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        return self.one(self.rows().get(pk=identifiers.read("own", name)))

    def patch(self, request: Any, name: str) -> HttpResponse:
        del request
        row = self.row(name)
        self.match(row)
        values = self.body(partial=True)
        borders = {
            border: instant(values[border], row.tenant.zone) if border in values else getattr(row, border)
            for border in ("since", "until")
        }
        row = ownership.amend(ownership=row, **borders)
        self.rated_again(row)
        return self.one(self.rows().get(pk=row.pk))

    def delete(self, request: Any, name: str) -> HttpResponse:
        del request
        row = self.row(name)
        self.match(row)
        Ownership.objects.filter(pk=row.pk).delete()
        values = {"account_ids": [row.account_id], "tenant_ids": [row.tenant_id]}
        outbox.add("billing.tasks.rate_accounts", **values)
        return HttpResponse(status=204)


class PayerSerializer(serializers.ModelSerializer[Payer]):
    """That a tenant pays for what another one uses, on days of the latter's zone."""

    id = IdField("payer")
    tenant = serializers.CharField(source="tenant.slug", help_text="Who uses.")
    payer = serializers.CharField(source="payer.slug", help_text="Whose invoices it goes on.")

    class Meta:
        model = Payer
        fields = ("id", "tenant", "payer", "since", "until")


class NewPayer(Body):
    tenant = serializers.CharField(max_length=50, help_text="Who uses.")
    payer = serializers.CharField(max_length=50, help_text="Whose invoices it goes on.")
    since = DayField(help_text="Its first day, in the zone of the tenant that uses.")
    until = DayField(required=False, allow_null=True, help_text="Null: with no end.")


class PayerEnd(Body):
    until = DayField(help_text="The day from which it no longer pays.")


class PayerEndpoint(WritingEndpoint):
    write_scope = "tenants:write"
    serializer = PayerSerializer
    refusals = (PayerError,)

    def rows(self) -> Any:
        return Payer.objects.select_related("tenant", "payer")

    def rated_again(self, row: Payer) -> None:
        outbox.add("billing.tasks.rate_tenants", tenant_ids=[row.tenant_id])


class Payers(PayerEndpoint):
    """Who pays for whom, and when. POST has a tenant pay for another one; whoever paid before ends there."""

    lists = True
    parameters = (
        TENANT,
        parameters.text("payer", "Slug of the tenant that pays.", longest=50),
        *parameters.LISTS,
    )
    request_serializer = NewPayer

    def get(self, request: Any) -> HttpResponse:
        del request
        rows = self.narrowed(self.rows(), tenant="tenant__slug", payer="payer__slug")
        return self.page(rows, order=("since", "pk"))

    def post(self, request: Any) -> HttpResponse:
        del request
        values = self.body()
        tenant, payer = tenant_in_body(values["tenant"]), tenant_in_body(values["payer"], "/payer")
        row = third_party_payers.pay_for(
            payer=payer, tenant=tenant, since=values["since"], until=values.get("until")
        )
        self.rated_again(row)
        return self.one(self.rows().get(pk=row.pk), status=201)


class OnePayer(PayerEndpoint):
    """One stretch in which a tenant pays for another one. PATCH moves its end."""

    request_serializer = PayerEnd

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        return self.one(self.rows().get(pk=identifiers.read("payer", name)))

    def patch(self, request: Any, name: str) -> HttpResponse:
        del request
        row = self.rows().select_for_update(of=("self",)).filter(pk=identifiers.read("payer", name)).first()
        if row is None:
            raise not_found()
        self.match(row)
        row = third_party_payers.end_payer(row=row, on=self.body()["until"])
        self.rated_again(row)
        return self.one(self.rows().get(pk=row.pk))
