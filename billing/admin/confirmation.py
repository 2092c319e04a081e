"""The page that confirms an action on documents: its effect on the money of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _

from billing.invoicing.credit_notes import CreditError
from billing.invoicing.voids import VoidError
from billing.models import Invoice
from billing.payments.gateway_access import CollectionError
from billing.receivables.write_offs import WriteOffError

REFUSALS = (CreditError, VoidError, CollectionError, WriteOffError)
CONFIRMED = "confirmed"
"""The field that the confirmation sends."""


def is_confirmed(request: HttpRequest) -> bool:
    return request.POST.get(CONFIRMED) == "yes"


def page(
    request: HttpRequest,
    site: admin.AdminSite,
    queryset: QuerySet[Invoice],
    *,
    title: str,
    effect: Callable[[Invoice], str],
) -> TemplateResponse:
    """A sentence for each document, the newest first, with the reason where it cannot be done. Nothing is changed."""
    sentences = []
    for invoice in queryset.select_related("period", "tenant").order_by("-pk"):
        try:
            sentences.append(effect(invoice))
        except REFUSALS as refusal:
            sentences.append(_("Cannot be done: {reason}").format(reason=refusal))
    context: dict[str, Any] = {
        **site.each_context(request),
        "title": title,
        "opts": queryset.model._meta,
        "sentences": sentences,
        "chosen": list(queryset.values_list("pk", flat=True)),
        "chosen_name": ACTION_CHECKBOX_NAME,
        "action": request.POST.get("action", ""),
        "why": request.POST.get("why", "").strip(),
        "confirmed": CONFIRMED,
    }
    return TemplateResponse(request, "admin/confirm_action.html", context)
