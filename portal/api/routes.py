"""The addresses of the resources, behind `/api/v1/`."""

from __future__ import annotations

from django.urls import URLPattern, path

from portal.api.resources import invoices, jobs, me, payments

routes: list[URLPattern] = [
    path("me", me.Me.as_view(), name="api_me"),
    path("status", me.Status.as_view(), name="api_status"),
    path("jobs", jobs.Jobs.as_view(), name="api_jobs"),
    path("jobs/<str:name>", jobs.OneJob.as_view(), name="api_job"),
    path("payments", payments.Payments.as_view(), name="api_payments"),
    path("wallets", payments.Wallets.as_view(), name="api_wallets"),
    path("wallets/<str:name>/entries", payments.WalletEntries.as_view(), name="api_wallet_entries"),
    path("invoices", invoices.Invoices.as_view(), name="api_invoices"),
    path("invoices/<str:name>", invoices.OneInvoice.as_view(), name="api_invoice"),
    path("invoices/<str:name>/lines", invoices.Lines.as_view(), name="api_invoice_lines"),
    *(
        path(f"invoices/<str:name>/{file}", view, name=f"api_invoice_{file.partition('.')[0]}")
        for file, view in invoices.FILES.items()
    ),
]
