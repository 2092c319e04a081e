"""Plans, their versions and prices, and who is on them."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from billing.admin.quotas import counted
from billing.catalog import line_descriptions, plans, subscriptions
from billing.catalog.plans import PlanError
from billing.catalog.price_words import price_words, term_words
from billing.catalog.version_terms import Term
from billing.models import (
    Allowance,
    Commitment,
    Discount,
    Fee,
    Plan,
    PlanQuota,
    PlanVersion,
    Price,
    Settles,
    Subscription,
)
from billing.quotas.status import period_text, scope_text
from portal.admin import ReadOnly, ReadOnlyInline, Recorded, portal_page
from portal.core.outbox import outbox


class VersionInline(ReadOnlyInline):
    model = PlanVersion
    fields = ("effective_from", "charges")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("plan").order_by("effective_from")


@admin.register(Plan)
class PlanAdmin(Recorded[Plan]):
    view_on_site = portal_page("operator_plan", "name")
    refusals = (PlanError,)
    list_display = ("name", "currency", "settles")
    search_fields = ("name",)
    ordering = ("name",)
    fields = ("name", "currency", "settles")  # the plan's page in the portal offers it to people who sign up
    inlines = (VersionInline,)

    def get_readonly_fields(self, request: HttpRequest, obj: Plan | None = None) -> tuple[str, ...]:
        return ("name",) if obj else ()

    def has_delete_permission(self, request: HttpRequest, obj: Plan | None = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: Plan, form: Any, change: bool) -> None:
        obj.pk = plans.set_plan(name=obj.name, currency=obj.currency, settles=Settles(obj.settles)).pk


class PriceInline(ReadOnlyInline):
    """What usage costs, in words as on the plan's page of the portal, where prices are ended and corrected."""

    model = Price
    fields = ("usage", "price", "tenant", "valid_from", "valid_until")
    readonly_fields = ("usage", "price")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = super().get_queryset(request).select_related("version__plan", "tenant", "allowance")
        return rows.order_by("position", "pk")

    def usage(self, price: Price) -> str:
        return line_descriptions.describe(price)

    def price(self, price: Price) -> str:
        return price_words(price)


class TermInline(ReadOnlyInline):
    """Terms of one kind; their own pages add, end and remove those of one tenant."""

    fields = ("terms", "tenant", "valid_from", "valid_until")
    readonly_fields = ("terms",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("version__plan", "tenant").order_by("pk")

    def terms(self, term: Term) -> str:
        return term_words(term, term.version.plan.currency)


class AllowanceInline(TermInline):
    model = Allowance


class FeeInline(TermInline):
    model = Fee


class CommitmentInline(TermInline):
    model = Commitment


class DiscountInline(TermInline):
    model = Discount


class BudgetInline(ReadOnlyInline):
    """Quotas that each subscriber has."""

    model = PlanQuota
    verbose_name_plural = gettext_lazy("budgets of each subscriber")
    amount_text = counted("amount", unit="unit")
    fields = ("amount_text", "period", "scope", "action")
    readonly_fields = ("amount_text", "period", "scope")
    ordering = ("name",)

    def period(self, quota: PlanQuota) -> str:
        return period_text(quota)

    def scope(self, quota: PlanQuota) -> str:
        return scope_text(quota)


@admin.register(PlanVersion)
class PlanVersionAdmin(ReadOnly[PlanVersion]):
    """All that a version says. The plan editor of the portal writes versions, and a configuration file."""

    view_on_site = portal_page("operator_plan", "plan.name")
    list_display = ("plan", "effective_from", "charges_text")
    list_filter = ("plan",)
    list_select_related = ("plan",)
    ordering = ("plan__name", "effective_from")
    fields = ("plan", "effective_from", "charges_text", "editor")
    readonly_fields = ("charges_text", "editor")
    inlines: ClassVar[Any] = (
        *(PriceInline, AllowanceInline, FeeInline, CommitmentInline, DiscountInline),
        BudgetInline,
    )

    @admin.display(description=gettext_lazy("charges"))
    def charges_text(self, version: PlanVersion) -> str:
        return ", ".join(version.charges) or _("nothing")

    @admin.display(description=gettext_lazy("to change it"))
    def editor(self, version: PlanVersion) -> SafeString:
        """One in use is followed by another; any other can be written again."""
        address = f"{reverse('operator_plan_editor')}?plan={version.plan.name}"
        if plans.in_use(version):
            return format_html('<a href="{}">{}</a>', address, _("New version on the portal"))
        address = f"{address}&version={version.effective_from}"
        return format_html('<a href="{}">{}</a>', address, _("Edit on the portal"))


@admin.register(Subscription)
class SubscriptionAdmin(Recorded[Subscription]):
    """A new one ends the one before it; past ones never change."""

    view_on_site = portal_page("operator_tenant", "tenant.slug")
    refusals = (PlanError,)
    list_display = ("tenant", "plan", "since", "until")
    list_filter = ("plan",)
    list_select_related = ("tenant", "plan")
    search_fields = ("tenant__slug", "tenant__name")
    ordering = ("tenant__slug", "since")
    autocomplete_fields = ("tenant", "plan")
    fields = ("tenant", "plan", "since")

    def has_change_permission(self, request: HttpRequest, obj: Subscription | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Subscription | None = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: Subscription, form: Any, change: bool) -> None:
        obj.pk = subscriptions.subscribe(tenant=obj.tenant, plan=obj.plan, since=obj.since).pk
        outbox.add("billing.tasks.rate_tenants", tenant_ids=[obj.tenant_id])
