"""The addresses of the resources, behind `/api/v1/`."""

from __future__ import annotations

from django.urls import URLPattern, path

from portal.api.resources import invoices, me

routes: list[URLPattern] = [
    path("me", me.Me.as_view(), name="api_me"),
    path("status", me.Status.as_view(), name="api_status"),
    path("invoices", invoices.Invoices.as_view(), name="api_invoices"),
    path("invoices/<str:name>", invoices.OneInvoice.as_view(), name="api_invoice"),
    path("invoices/<str:name>/lines", invoices.Lines.as_view(), name="api_invoice_lines"),
    *(
        path(f"invoices/<str:name>/{file}", view, name=f"api_invoice_{file.partition('.')[0]}")
        for file, view in invoices.FILES.items()
    ),
]
