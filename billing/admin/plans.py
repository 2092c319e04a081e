"""Plans, their versions and prices, and who is on them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html_join
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy

from billing.catalog import line_descriptions, plans, subscriptions
from billing.catalog.plans import PlanError
from billing.catalog.version_terms import SETTERS, Term
from billing.models import (
    PeriodTotal,
    Plan,
    PlanVersion,
    Price,
    Resource,
    Settles,
    Subscription,
)
from billing.models.plans import SELECTORS
from billing.rules import hours as clock
from billing.rules.formatting import plain_price
from billing.rules.meters import MAX_PRICE_DECIMALS, Meter
from billing.rules.money import rounded_text
from billing.rules.tiers import Scale, first_price, of_terms
from clusters.models import DeclaredMeter
from portal.admin import Choosing, ReadOnlyInline, Recorded
from portal.core.outbox import outbox
from portal.excerpt import NO_CHOICE

TERMS = ("meter", *SELECTORS.values(), "hours", "tenant", "model", "unit_price", "scale", "valid_from")


def rate_again(plan: Plan) -> None:
    """Have a worker rate whoever was ever on the plan."""
    tenants = list(plans.subscribers(plan).values_list("pk", flat=True))
    if tenants:
        outbox.add("billing.tasks.rate_tenants", tenant_ids=tenants)


class VersionInline(ReadOnlyInline):
    model = PlanVersion
    fields = ("effective_from", "charges")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("plan").order_by("effective_from")


@admin.register(Plan)
class PlanAdmin(Recorded[Plan]):
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


class PriceField(forms.DecimalField):
    """Without the zeros that the column pads its decimals with."""

    def prepare_value(self, value: Any) -> Any:
        return f"{value.normalize():f}" if isinstance(value, Decimal) else value


def _meters() -> list[tuple[str, str]]:
    declared = DeclaredMeter.objects.order_by("name").values_list("name", flat=True)
    return [(name, name) for name in (*(meter.value for meter in Meter), *declared)]


def _charges() -> list[tuple[str, str]]:
    return [*Resource.choices, *DeclaredMeter.objects.order_by("name").values_list("name", "title")]


class PriceForm(forms.ModelForm[Price]):
    unit_price = PriceField(
        max_digits=24,
        decimal_places=12,
        min_value=0,
        required=False,
        help_text=gettext_lazy("Per unit of the meter; with a scale, it follows from the scale."),
    )
    meter = forms.ChoiceField(choices=_meters, error_messages=NO_CHOICE)
    model = forms.ChoiceField(
        error_messages=NO_CHOICE,
        choices=[(scale.value, scale.value.replace("_", " ")) for scale in Scale],
        required=False,
        initial=Scale.PER_UNIT.value,
        help_text=gettext_lazy("How the price depends on the quantity."),
    )

    class Meta:
        model = Price
        fields = (*TERMS, "valid_until")

    def clean(self) -> dict[str, Any]:
        """What the price comes to has to be one that can be computed."""
        cleaned_data = super().clean() or self.cleaned_data
        model, scale = cleaned_data.get("model") or Scale.PER_UNIT, cleaned_data.get("scale") or {}
        if model == Scale.PER_UNIT and scale:
            raise ValidationError({"scale": "A price per unit has no scale; choose its model or empty this."})
        if (
            model == Scale.PER_UNIT
            and cleaned_data.get("unit_price") is None
            and "unit_price" not in self.errors
        ):
            raise ValidationError({"unit_price": "A price per unit needs one."})
        if model != Scale.PER_UNIT:
            try:
                first = first_price(of_terms({"model": model, **scale}))
            except (TypeError, ValueError) as error:
                raise ValidationError({"scale": f"{error} {SCALES}"}) from error
            cleaned_data["unit_price"] = Decimal(rounded_text(first, MAX_PRICE_DECIMALS))
        cleaned_data["model"] = str(model)
        return cleaned_data


SCALES = (
    'Tiers are written {"tiers": [{"up_to": "100", "unit_price": "3.00"}, {"up_to": null, "unit_price": "2.50"}]}, '
    'a package {"size": "10", "price": "25.00"}.'
)


def _used() -> QuerySet[PeriodTotal, int | None]:
    return PeriodTotal.objects.filter(price_id__isnull=False).values_list("price_id", flat=True)


class UsedPrices(admin.TabularInline[Price, PlanVersion]):
    """Usage was rated by them: they can be ended, and nothing else."""

    model = Price
    verbose_name_plural = "prices in use"
    extra = 0
    can_delete = False
    fields = ("meter", *SELECTORS.values(), "when", "tenant", "price", "valid_from", "valid_until")
    readonly_fields = ("meter", *SELECTORS.values(), "when", "tenant", "price", "valid_from")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Price]:
        rows = super().get_queryset(request).filter(pk__in=_used()).select_related("version__plan", "tenant")
        return rows.order_by("position", "pk")

    @admin.display(description=gettext_lazy("hours"))
    def when(self, price: Price) -> str:
        hours = clock.of_terms(price.hours)
        return hours.text if hours else "always"

    @admin.display(description=gettext_lazy("unit price"))
    def price(self, price: Price) -> str:
        currency = price.version.plan.currency
        if price.scale:
            return line_descriptions.scale(price)
        return f"{plain_price(price.unit_price, currency)} {currency}"

    def has_add_permission(self, request: HttpRequest, obj: PlanVersion | None = None) -> bool:
        return False


class OtherPrices(Choosing[Price], admin.StackedInline[Price, PlanVersion]):
    """Nothing was rated by them yet. Lists of values are separated by commas."""

    model = Price
    form = PriceForm
    formfield_overrides = Recorded.formfield_overrides
    verbose_name_plural = gettext_lazy("prices not in use yet")
    extra = 0
    fieldsets = (
        (None, {"fields": (("meter", "model", "unit_price", "valid_from", "valid_until"), "scale")}),
        (
            gettext_lazy("For usage of"),
            {"fields": (tuple(SELECTORS.values())[:4], tuple(SELECTORS.values())[4:], "hours", "tenant")},
        ),
    )
    autocomplete_fields = ("tenant",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Price]:
        return super().get_queryset(request).exclude(pk__in=_used()).order_by("position", "pk")


def _summary(row: Term) -> str:
    return ", ".join(f"{name} {value}" for name, value in line_descriptions.term(row).items() if value)


class VersionForm(forms.ModelForm[PlanVersion]):
    charges = forms.MultipleChoiceField(
        choices=_charges,
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=gettext_lazy("Other resources and meters are free."),
        error_messages=NO_CHOICE,
    )

    class Meta:
        model = PlanVersion
        fields = ("plan", "effective_from", "charges")


@admin.register(PlanVersion)
class PlanVersionAdmin(Recorded[PlanVersion]):
    refusals = (PlanError,)
    list_display = ("plan", "effective_from", "charges")
    list_filter = ("plan",)
    list_select_related = ("plan",)
    ordering = ("plan__name", "effective_from")
    form = VersionForm
    inlines: ClassVar[Any] = (UsedPrices, OtherPrices)

    def get_readonly_fields(self, request: HttpRequest, obj: PlanVersion | None = None) -> tuple[str, ...]:
        return ("plan", "effective_from", "terms") if obj else ()

    @admin.display(description=gettext_lazy("terms"))
    def terms(self, version: PlanVersion) -> str:
        """Its allowances, fees, commitment and discounts, which `apply` or their own pages change."""
        terms = [
            (line_descriptions.whose(row), _summary(row))
            for model in SETTERS
            for row in model._default_manager.filter(version=version).select_related("tenant").order_by("pk")
        ]
        return format_html_join(mark_safe("<br>"), "{}: {}", terms) or "–"

    def has_delete_permission(self, request: HttpRequest, obj: PlanVersion | None = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: PlanVersion, form: Any, change: bool) -> None:
        obj.pk = plans.new_version(
            plan=obj.plan, effective_from=obj.effective_from, charges=form.cleaned_data["charges"]
        ).pk

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        for price in formset.save(commit=False):
            plans.save_price(price)
        for price in formset.deleted_objects:
            if not plans.in_use(price):
                price.delete()

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)
        rate_again(form.instance.plan)


@admin.register(Subscription)
class SubscriptionAdmin(Recorded[Subscription]):
    """A new one ends the one before it; past ones never change."""

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
