"""Tenants and the accounts that they own: what changes them changes what usage costs."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from billing.models import Subscription
from billing.tasks import rate_accounts, rate_tenants
from portal.admin import ReadOnlyInline, Recorded
from portal.outbox import outbox
from portal.tenants import ownership
from portal.tenants.models import Membership, Ownership, Project, Tenant
from portal.tenants.ownership import OwnershipConflictError


class ProjectInline(admin.TabularInline[Project, Tenant]):
    model = Project
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


@admin.register(Tenant)
class TenantAdmin(Recorded[Tenant]):
    list_display = ("name", "slug", "timezone", "anchor_day", "tax_rate", "payment_terms_days")
    search_fields = ("name", "slug")
    ordering = ("name",)
    inlines = (ProjectInline, MemberInline, OwnershipInline, SubscriptionInline)

    def get_readonly_fields(self, request: HttpRequest, obj: Tenant | None = None) -> tuple[str, ...]:
        return ("slug",) if obj else ()

    def has_delete_permission(self, request: HttpRequest, obj: Tenant | None = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: Tenant, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        if change and "timezone" in form.changed_data:  # prices begin at the zone's midnights
            outbox.add(rate_tenants, tenant_ids=[obj.pk])


class NewOwnership(forms.ModelForm[Ownership]):
    """The cost centre by name, since most are made here."""

    project_name = forms.CharField(
        label="Project", max_length=200, required=False, help_text="Cost centre; empty: the account's name."
    )

    class Meta:
        model = Ownership
        fields = ("account", "tenant", "since", "until")

    def _get_validation_exclusions(self) -> set[str]:
        """One owner at a time is left to `ownership.assign`, which ends the present ownership first."""
        return {*super()._get_validation_exclusions(), "account"}  # type: ignore[misc]  # Django has it


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
            kept = Ownership.objects.get(pk=obj.pk)
            ownership.amend(ownership=kept, since=obj.since, until=obj.until)
        else:
            kept = ownership.assign(
                account=obj.account,
                tenant=obj.tenant,
                project=form.cleaned_data["project_name"],
                since=obj.since,
                until=obj.until,
            )
            obj.pk, obj.project = kept.pk, kept.project
        outbox.add(rate_accounts, account_ids=[kept.account_id])

    def delete_model(self, request: HttpRequest, obj: Ownership) -> None:
        obj.delete()
        outbox.add(rate_accounts, account_ids=[obj.account_id])

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Ownership]) -> None:
        accounts = sorted(set(queryset.values_list("account", flat=True)))
        queryset.delete()
        outbox.add(rate_accounts, account_ids=accounts)
