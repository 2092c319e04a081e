"""Plans with their versions, as a file for `apply` has them."""

from __future__ import annotations

from datetime import date
from typing import Any

from django.http import HttpResponse
from rest_framework import serializers

from billing.catalog import plans
from billing.catalog.public_plans import set_offer
from billing.models import Plan, PlanVersion
from portal.api import parameters
from portal.api.entry_fields import as_data, body_of, entry_of
from portal.api.parameters import parse_day
from portal.api.problems import bad_request, conflict, not_found
from portal.api.resources.operators.endpoint import OperatorEndpoint, WritingEndpoint, tenant_in_body
from portal.config_file import drafts
from portal.config_file.apply import REFUSALS
from portal.config_file.export import plan_entry
from portal.config_file.plan_entries import PlanEntry, PriceEntry
from portal.config_file.plans import write_price
from portal.core.outbox import outbox


class PlanSerializer(serializers.ModelSerializer[Plan]):
    """A plan; what it costs is in its versions."""

    versions = serializers.SerializerMethodField(help_text="The days on which its versions begin.")

    class Meta:
        model = Plan
        fields = ("name", "currency", "settles", "public", "versions")

    def get_versions(self, plan: Plan) -> list[str]:
        return sorted(str(version.effective_from) for version in plan.versions.all())


class Plans(OperatorEndpoint):
    """All plans, by name."""

    serializer = PlanSerializer
    lists = True
    parameters = parameters.LISTS

    def get(self, request: Any) -> HttpResponse:
        del request
        return self.page(Plan.objects.prefetch_related("versions"), order=("name",))


class OnePlan(WritingEndpoint):
    """One plan, by its name. DELETE takes away a plan that nobody was ever on."""

    write_scope = "plans:write"
    serializer = PlanSerializer
    refusals = REFUSALS

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        return self.one(Plan.objects.prefetch_related("versions").get(name=name))

    def delete(self, request: Any, name: str) -> HttpResponse:
        del request
        plan = Plan.objects.select_for_update().get(name=name)
        self.match(plan)
        plans.delete_plan(plan=plan)
        return HttpResponse(status=204)


class VersionFields(body_of(PlanEntry)):  # type: ignore[misc]  # its fields are those of the file
    """A version of a plan: what usage costs from its first day on. The fields are those of `[[plan]]`."""

    name = serializers.CharField(required=False, max_length=50, help_text="That of the address.")
    published = serializers.BooleanField(
        read_only=True, help_text="Usage was rated by it, or a line billed: it stays as it is."
    )


class VersionEndpoint(WritingEndpoint):
    write_scope = "plans:write"
    serializer = VersionFields
    refusals = REFUSALS

    def representation(self, row: Any, **context: Any) -> Any:
        """As the file has it, and whether it may still be replaced."""
        del context
        return as_data(plan_entry(row)) | {"published": plans.billed(row)}

    def representations(self, rows: Any, **context: Any) -> Any:
        return [self.representation(row, **context) for row in rows]

    def version(self, name: str, day: str) -> PlanVersion | None:
        try:
            begins = parse_day(day)
        except ValueError:
            raise not_found() from None
        rows = PlanVersion.objects.select_related("plan").select_for_update(of=("self",))
        return rows.filter(plan__name=name, effective_from=begins).first()


class Versions(VersionEndpoint):
    """The versions of a plan with their prices, the oldest first."""

    lists = True
    parameters = parameters.LISTS
    write_parameters = ()

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        rows = PlanVersion.objects.filter(plan=Plan.objects.get(name=name)).select_related("plan")
        return self.page(rows, order=("effective_from", "pk"))


class OneVersion(VersionEndpoint):
    """One version of a plan. PUT publishes it; one that usage was rated by is read-only.

    With `dry_run=true`, PUT tries a draft and keeps nothing. Whoever is on the plan is rated again.
    """

    request_serializer = VersionFields

    def get(self, request: Any, name: str, day: str) -> HttpResponse:
        del request
        version = self.version(name, day)
        if version is None:
            raise not_found()
        return self.one(version)

    def put(self, request: Any, name: str, day: str) -> HttpResponse:
        del request
        version = self.version(name, day)
        if version is None:
            self.match_new()
        else:
            self.match(version)
        entry = self._entry(name, day)
        if version is None or not _says(version, entry):
            version = drafts.publish_entry(entry).version
        else:  # who may choose the plan is no matter of its versions
            set_offer(plan=version.plan, public=entry.public, starting_credit=entry.starting_credit)
            version.plan.refresh_from_db()
        return self.one(version)

    def _entry(self, name: str, day: str) -> PlanEntry:
        values = self.body()
        for key, in_address in (("name", name), ("from", date.fromisoformat(day))):
            if values.get(key) not in {None, in_address}:
                sentence = f"{key} is not that of the address."
                raise bad_request(sentence, (f"/{key}", sentence))
        values |= {"name": name, "from": date.fromisoformat(day)}
        return entry_of(PlanEntry, values, label=f'plan "{name}"')

    def delete(self, request: Any, name: str, day: str) -> HttpResponse:
        del request
        version = self.version(name, day)
        if version is None:
            raise not_found()
        self.match(version)
        tenants = list(plans.subscribers(version.plan).values_list("pk", flat=True))
        plans.delete_version(version=version)
        if tenants:
            outbox.add("billing.tasks.rate_tenants", tenant_ids=tenants)
        return HttpResponse(status=204)


def _says(version: PlanVersion, entry: PlanEntry) -> bool:
    """Whether the version is as the entry says, no matter who may choose its plan."""
    offer = {"public": entry.public, "starting_credit": entry.starting_credit}
    return bool(as_data(plan_entry(version).replaced(**offer)) == as_data(entry))


class TenantPrices(VersionEndpoint):
    """A price for one tenant alone, from a day on, in the version of the plan that holds then."""

    request_serializer = body_of(PriceEntry)

    def post(self, request: Any, name: str) -> HttpResponse:
        del request
        plan, values = Plan.objects.get(name=name), self.body()
        if not values.get("tenant"):
            sentence = "Name the tenant: a price for all belongs to a new version of the plan."
            raise bad_request(sentence, ("/tenant", sentence))
        tenant = tenant_in_body(values["tenant"])
        entry = entry_of(PriceEntry, values, label="price")
        versions = (
            plan.versions.select_for_update().select_related("plan").filter(effective_from__lte=entry.since)
        )
        version = versions.order_by("-effective_from").first()
        if version is None:
            raise conflict(f"No version of plan {name} holds on {entry.since} yet.")
        write_price(version, entry)
        outbox.add("billing.tasks.rate_tenants", tenant_ids=[tenant.pk])
        return self.one(version, status=201)


class CorrectionFields(body_of(PriceEntry, without=["until"])):  # type: ignore[misc]  # its fields are those of the file
    """A price of the version, by its meter, selectors, hours and first day, and what it comes to."""

    correction = serializers.CharField(max_length=255, help_text="Why; it stands in the history.")


class PriceCorrections(VersionEndpoint):
    """What a price in use comes to, on all of its days: the next close bills or credits the difference."""

    request_serializer = CorrectionFields
    success = 200  # nothing is made: a version changes

    def post(self, request: Any, name: str, day: str) -> HttpResponse:
        del request
        version = self.version(name, day)
        if version is None:
            raise not_found()
        entry = entry_of(PriceEntry, self.body(), label="price")
        prices = set(version.prices.values_list("pk", flat=True))
        with self.by(entry.correction or ""):
            price = write_price(version, entry)
        if price.pk not in prices:
            raise conflict(
                "This version has no such price: a correction names its meter, where, hours and from."
            )
        return self.one(version)
