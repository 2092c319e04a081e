"""Allowances, fees, commitments and discounts of one tenant: added, ended, or removed while unbilled."""

from __future__ import annotations

from datetime import date
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import BooleanField, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from billing.catalog import version_terms
from billing.catalog.plans import PlanError
from billing.catalog.price_words import term_words
from billing.catalog.version_terms import Term
from billing.models import Commitment
from portal.admin import Recorded, portal_page

FOR_ONE = ("version", "tenant")
DATES = ("valid_from", "valid_until")


class OwnTermForm(forms.ModelForm[Any]):
    """What is for all is written in a file, with its plan; here somebody gets something of their own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("tenant", "valid_from"):
            if name in self.fields:
                self.fields[name].required = True


@admin.register(*version_terms.SETTERS)
class TermAdmin(Recorded[Any]):
    """Terms for all never change here; a tenant's own can be ended, and removed while unbilled."""

    view_on_site = portal_page("operator_plan", "version.plan.name")
    refusals = (PlanError,)
    list_display = ("name", "version", "value", "whose", "valid_from", "valid_until")
    list_filter = ("version__plan",)
    list_select_related = ("version__plan", "tenant")
    search_fields = ("name", "tenant__slug")
    ordering = ("version__plan__name", "-version__effective_from", "pk")
    autocomplete_fields = ("tenant",)
    form = OwnTermForm
    actions = None

    def _own(self) -> list[str]:
        """What the form asks beside whose it is and when; whether it rolls over or is in advance follows the plan's."""
        columns = [name for name in version_terms.own_columns(self.model) if not _is_flag(self.model, name)]
        return columns if self.model is Commitment else ["name", *columns]

    def get_fields(self, request: HttpRequest, obj: Term | None = None) -> tuple[str, ...]:
        return (*FOR_ONE, *self._own(), *DATES)

    def get_readonly_fields(self, request: HttpRequest, obj: Term | None = None) -> tuple[str, ...]:
        return () if obj is None else (*FOR_ONE, *self._own(), "valid_from")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("version__plan", "tenant")

    def has_change_permission(self, request: HttpRequest, obj: Term | None = None) -> bool:
        return (obj is None or obj.tenant_id is not None) and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Term | None = None) -> bool:
        return obj is not None and obj.tenant_id is not None

    @admin.display(description=gettext_lazy("value"))
    def value(self, term: Term) -> str:
        return term_words(term, term.version.plan.currency)

    @admin.display(description=gettext_lazy("for"), ordering="tenant__slug")
    def whose(self, term: Term) -> str:
        return term.tenant.slug if term.tenant else _("all subscribers")

    def save_model(self, request: HttpRequest, obj: Term, form: Any, change: bool) -> None:
        until: date | None = form.cleaned_data["valid_until"]
        if change:
            version_terms.end_term(term=obj, on=until)
            return
        values = {name: form.cleaned_data[name] for name in (*FOR_ONE, *self._own(), *DATES)}
        obj.pk = version_terms.SETTERS[self.model](**values).pk

    def delete_model(self, request: HttpRequest, obj: Term) -> None:
        version_terms.drop_term(term=obj)


def _is_flag(model: type[Term], name: str) -> bool:
    return isinstance(model._meta.get_field(name), BooleanField)
