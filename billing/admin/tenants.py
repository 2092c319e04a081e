"""Tenants and the accounts that they own: what changes them changes what usage costs."""

from __future__ import annotations

from copy import copy
from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.contrib.admin.widgets import AdminTextInputWidget
from django.db.models import QuerySet
from django.http import HttpRequest

from billing.catalog import third_party_payers
from billing.catalog.third_party_payers import PayerError
from billing.invoicing import line_taxes, sellers
from billing.models import Archive, Erasure, Payer, Subscription
from portal.admin import ReadOnly, ReadOnlyInline, Recorded, portal_page
from portal.core.outbox import outbox
from portal.core.tenants import ownership
from portal.core.tenants.models import Membership, Ownership, Project, Tenant
from portal.core.tenants.ownership import OwnershipConflictError


class ProjectForm(forms.ModelForm[Project]):
    class Meta:
        widgets: ClassVar = {"name": AdminTextInputWidget(attrs={"aria-label": "Name of the project"})}


class ProjectInline(admin.TabularInline[Project, Tenant]):
    model = Project
    form = ProjectForm
    extra = 0
    can_delete = False


class MemberInline(ReadOnlyInline):
    model = Membership
    fields = ("user", "role")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("user", "tenant").order_by("user__email")


class OwnershipInline(ReadOnlyInline):
    model = Ownership
    fields = ("account", "project", "since", "until")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = super().get_queryset(request).select_related("account__cluster", "project", "tenant")
        return rows.order_by("account__cluster__name", "account__name", "since")


class SubscriptionInline(ReadOnlyInline):
    model = Subscription
    fields = ("plan", "since", "until")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("plan", "tenant").order_by("since")


class PayerInline(ReadOnlyInline):
    model = Payer
    fk_name = "tenant"
    verbose_name_plural = "paid by"
    fields = ("payer", "since", "until")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("tenant", "payer").order_by("since")


class PaysForInline(PayerInline):
    fk_name = "payer"
    verbose_name_plural = "pays for"
    fields = ("tenant", "since", "until")


class TenantForm(forms.ModelForm[Tenant]):
    """Refuses what no invoice could be taxed by."""

    def clean(self) -> dict[str, Any] | None:
        cleaned_data = super().clean() or self.cleaned_data
        candidate = copy(self.instance)
        for name, value in cleaned_data.items():
            setattr(candidate, name, value)
        if refusal := line_taxes.load_taxes([], sellers.load_seller()).refusal(candidate):
            raise forms.ValidationError(refusal[0].upper() + refusal[1:])
        return cleaned_data


@admin.register(Tenant)
class TenantAdmin(Recorded[Tenant]):
    view_on_site = portal_page("operator_tenant", "slug")
    form = TenantForm
    list_display = (
        "name",
        "slug",
        "timezone",
        "anchor_day",
        "country",
        "tax_treatment",
        "tax_rate",
        "payment_terms_days",
    )
    search_fields = ("name", "slug")
    ordering = ("name",)
    inlines = (ProjectInline, MemberInline, OwnershipInline, SubscriptionInline, PayerInline, PaysForInline)

    def get_readonly_fields(self, request: HttpRequest, obj: Tenant | None = None) -> tuple[str, ...]:
        return ("slug",) if obj else ()

    def has_delete_permission(self, request: HttpRequest, obj: Tenant | None = None) -> bool:
        return False


class NewOwnership(forms.ModelForm[Ownership]):
    """The cost centre by name, since most are made here."""

    project_name = forms.CharField(
        label="Project", max_length=200, required=False, help_text="Cost center; blank = the account’s name."
    )

    class Meta:
        model = Ownership
        fields = ("account", "tenant", "since", "until")


@admin.register(Ownership)
class OwnershipAdmin(Recorded[Ownership]):
    """A new one takes the account over at its beginning; of a standing one, only the borders move."""

    refusals = (OwnershipConflictError,)
    list_display = ("account", "tenant", "project", "since", "until")
    list_filter = ("account__cluster", "tenant")
    list_select_related = ("account__cluster", "tenant", "project")
    search_fields = ("account__name", "tenant__slug", "tenant__name")
    ordering = ("account__cluster__name", "account__name", "since")
    autocomplete_fields = ("account", "tenant")

    def get_form(
        self, request: HttpRequest, obj: Ownership | None = None, change: bool = False, **kwargs: Any
    ) -> Any:
        if obj is None:
            kwargs["form"] = NewOwnership
        return super().get_form(request, obj, change, **kwargs)

    def get_fields(self, request: HttpRequest, obj: Ownership | None = None) -> tuple[str, ...]:
        return ("account", "tenant", "project" if obj else "project_name", "since", "until")

    def get_readonly_fields(self, request: HttpRequest, obj: Ownership | None = None) -> tuple[str, ...]:
        return ("account", "tenant", "project") if obj else ()

    def save_model(self, request: HttpRequest, obj: Ownership, form: Any, change: bool) -> None:
        if change:
            row = Ownership.objects.get(pk=obj.pk)
            ownership.amend(ownership=row, since=obj.since, until=obj.until)
        else:
            row = ownership.assign(
                account=obj.account,
                tenant=obj.tenant,
                project=form.cleaned_data["project_name"],
                since=obj.since,
                until=obj.until,
            )
            obj.pk, obj.project = row.pk, row.project
        outbox.add("billing.tasks.rate_accounts", account_ids=[row.account_id])

    def delete_model(self, request: HttpRequest, obj: Ownership) -> None:
        obj.delete()
        values = {"account_ids": [obj.account_id], "tenant_ids": [obj.tenant_id]}
        outbox.add("billing.tasks.rate_accounts", **values)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Ownership]) -> None:
        accounts, tenants = (
            sorted(set(queryset.values_list(column, flat=True))) for column in ("account", "tenant")
        )
        queryset.delete()
        outbox.add("billing.tasks.rate_accounts", account_ids=accounts, tenant_ids=tenants)


@admin.register(Payer)
class PayerAdmin(Recorded[Payer]):
    """A new one ends whoever paid before; of a standing one only the end moves, and on its first day it never paid."""

    refusals = (PayerError,)
    list_display = ("tenant", "payer", "since", "until")
    list_select_related = ("tenant", "payer")
    search_fields = ("tenant__slug", "tenant__name", "payer__slug", "payer__name")
    ordering = ("tenant__name", "since")
    autocomplete_fields = ("tenant", "payer")
    fields = ("tenant", "payer", "since", "until")

    def get_readonly_fields(self, request: HttpRequest, obj: Payer | None = None) -> tuple[str, ...]:
        return ("tenant", "payer", "since") if obj else ()

    def has_delete_permission(self, request: HttpRequest, obj: Payer | None = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: Payer, form: Any, change: bool) -> None:
        if not change:
            obj.pk = third_party_payers.pay_for(
                payer=obj.payer, tenant=obj.tenant, since=obj.since, until=obj.until
            ).pk
        elif obj.until is not None:
            third_party_payers.end_payer(row=Payer.objects.get(pk=obj.pk), on=obj.until)
        else:
            raise PayerError(
                "It has an end, which is moved, not taken away: write another day, or add one after it."
            )
        outbox.add("billing.tasks.rate_tenants", tenant_ids=[obj.tenant_id])


@admin.register(Archive)
class ArchiveAdmin(ReadOnly[Archive]):
    """Tenants that have left; `archive_tenant` says what is left to do before."""

    list_display = ("tenant", "at", "by", "reason", "erased_at")
    list_select_related = ("tenant",)
    ordering = ("-at",)


@admin.register(Erasure)
class ErasureAdmin(ReadOnly[Erasure]):
    """What `erase_old` erased, and how much of it."""

    list_display = ("kind", "before", "begun_at", "rows", "reason")
    ordering = ("-begun_at",)
