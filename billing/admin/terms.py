"""What versions of plans say beside their prices: given to one tenant alone here, ended, or dropped while unbilled."""

from __future__ import annotations

from abc import abstractmethod
from datetime import date
from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from billing.catalog import line_descriptions, plan_versions
from billing.catalog.plans import PlanError
from billing.models import Allowance, Commitment, Discount, Fee
from portal.admin import Recorded

Said = Allowance | Commitment | Discount | Fee

FOR_ONE = ("version", "tenant")
DATES = ("valid_from", "valid_until")


class OwnTermForm(forms.ModelForm[Any]):
    """What is for all is written in a file, with its plan; here somebody gets something of their own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("tenant", "valid_from"):
            if name in self.fields:
                self.fields[name].required = True


class TermAdmin(Recorded[Any]):
    """Of a term for all everything stands; of a tenant's own the end can move, and what was not billed can go."""

    refusals = (PlanError,)
    list_display = ("name", "version", "says", "whose")
    list_filter = ("version__plan",)
    list_select_related = ("version__plan", "tenant")
    search_fields = ("name", "tenant__slug")
    ordering = ("version__plan__name", "-version__effective_from", "pk")
    autocomplete_fields = ("tenant",)
    form = OwnTermForm
    actions = None
    amounts: ClassVar[tuple[str, ...]] = ("name",)

    def get_fields(self, request: HttpRequest, obj: Said | None = None) -> tuple[str, ...]:
        return (*FOR_ONE, *self.amounts, *DATES)

    def get_readonly_fields(self, request: HttpRequest, obj: Said | None = None) -> tuple[str, ...]:
        return () if obj is None else (*FOR_ONE, *self.amounts, "valid_from")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("version__plan", "tenant")

    def has_change_permission(self, request: HttpRequest, obj: Said | None = None) -> bool:
        return (obj is None or obj.tenant_id is not None) and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Said | None = None) -> bool:
        return obj is not None and obj.tenant_id is not None

    @admin.display(description="says")
    def says(self, term: Said) -> str:
        return ", ".join(f"{name} {value}" for name, value in line_descriptions.term(term).items() if value)

    @admin.display(description="for", ordering="tenant__slug")
    def whose(self, term: Said) -> str:
        return term.tenant.slug if term.tenant else "all on the plan"

    def save_model(self, request: HttpRequest, obj: Said, form: Any, change: bool) -> None:
        until: date | None = form.cleaned_data["valid_until"]
        if change:
            plan_versions.end_term(term=obj, on=until)
            return
        values = {name: form.cleaned_data[name] for name in (*FOR_ONE, *self.amounts, *DATES)}
        obj.pk = self.given(values).pk

    @abstractmethod
    def given(self, values: dict[str, Any]) -> Said:
        """Give the tenant what the form told, by the use case of this kind of term."""

    def delete_model(self, request: HttpRequest, obj: Said) -> None:
        plan_versions.drop_term(term=obj)


@admin.register(Allowance)
class AllowanceAdmin(TermAdmin):
    amounts = ("name", "hours")

    def given(self, values: dict[str, Any]) -> Allowance:
        return plan_versions.set_allowance(**values)


@admin.register(Fee)
class FeeAdmin(TermAdmin):
    amounts = ("name", "amount")

    def given(self, values: dict[str, Any]) -> Fee:
        return plan_versions.set_fee(**values)


@admin.register(Commitment)
class CommitmentAdmin(TermAdmin):
    amounts = ("amount", "overage_factor")

    def given(self, values: dict[str, Any]) -> Commitment:
        return plan_versions.set_commitment(factor=values.pop("overage_factor"), **values)


@admin.register(Discount)
class DiscountAdmin(TermAdmin):
    amounts = ("name", "percent", "amount")

    def given(self, values: dict[str, Any]) -> Discount:
        return plan_versions.set_discount(**values)
