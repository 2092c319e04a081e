"""The addresses of the resources, behind `/api/v1/`."""

from __future__ import annotations

from django.urls import URLPattern, path

from portal.api.resources import (
    charges,
    events,
    exports,
    forecast,
    invoices,
    job_checks,
    job_reservations,
    jobs,
    keys,
    limits,
    me,
    payment_links,
    payments,
    quota_checks,
    quotas,
    quotes,
    usage,
    usage_change,
    usage_events,
    wallets,
    webhooks,
)
from portal.api.resources.operators.routes import routes as operator_routes

routes: list[URLPattern] = [
    path("me", me.Me.as_view(), name="api_me"),
    path("status", me.Status.as_view(), name="api_status"),
    path("keys", keys.Keys.as_view(), name="api_keys_list"),
    path("keys/<str:name>", keys.OneKey.as_view(), name="api_key"),
    path("keys/<str:name>/rotations", keys.KeyRotation.as_view(), name="api_key_rotations"),
    path("limits", limits.Limits.as_view(), name="api_limits"),
    path("limits/<str:name>", limits.OneLimit.as_view(), name="api_limit"),
    path("quotas", quotas.Quotas.as_view(), name="api_quotas"),
    path("quotas/check", quota_checks.QuotaChecks.as_view(), name="api_quota_checks"),
    path("quotas/<str:name>", quotas.OneQuota.as_view(), name="api_quota"),
    path("quotes", quotes.Quotes.as_view(), name="api_quotes"),
    path("events", events.Events.as_view(), name="api_events"),
    path("forecast", forecast.Forecast.as_view(), name="api_forecast"),
    path("webhooks", webhooks.Webhooks.as_view(), name="api_webhooks"),
    path("webhooks/<str:name>", webhooks.OneWebhook.as_view(), name="api_webhook"),
    path("webhooks/<str:name>/rotations", webhooks.WebhookRotation.as_view(), name="api_webhook_rotations"),
    path("webhooks/<str:name>/deliveries", webhooks.Deliveries.as_view(), name="api_webhook_deliveries"),
    path("webhooks/<str:name>/tests", webhooks.WebhookTest.as_view(), name="api_webhook_tests"),
    path("webhooks/<str:name>/resends", webhooks.WebhookResend.as_view(), name="api_webhook_resends"),
    path("usage", usage.Usage.as_view(), name="api_usage"),
    path("usage/change", usage_change.UsageChange.as_view(), name="api_usage_change"),
    path("jobs", jobs.Jobs.as_view(), name="api_jobs"),
    path("jobs/<str:name>", jobs.OneJob.as_view(), name="api_job"),
    path("job-checks", job_checks.JobChecks.as_view(), name="api_job_checks"),
    path("job-reservations", job_reservations.JobReservations.as_view(), name="api_job_reservations"),
    path(
        "job-reservations/<str:name>",
        job_reservations.OneJobReservation.as_view(),
        name="api_job_reservation",
    ),
    path("blocked-accounts", job_reservations.BlockedAccounts.as_view(), name="api_blocked_accounts"),
    path("usage-events", usage_events.UsageEvents.as_view(), name="api_usage_events"),
    path("exports/focus", exports.Focus.as_view(), name="api_exports_focus"),
    path("exports/ledger", exports.Ledger.as_view(), name="api_exports_ledger"),
    path("payments", payments.Payments.as_view(), name="api_payments"),
    path("wallets", wallets.Wallets.as_view(), name="api_wallets"),
    path("wallets/<str:name>", wallets.OneWallet.as_view(), name="api_wallet"),
    path("wallets/<str:name>/holds", wallets.Holds.as_view(), name="api_wallet_holds"),
    path("wallets/<str:name>/statement", wallets.WalletStatement.as_view(), name="api_wallet_statement"),
    path("wallets/<str:name>/entries", wallets.WalletEntries.as_view(), name="api_wallet_entries"),
    path("invoices", invoices.Invoices.as_view(), name="api_invoices"),
    path("invoices/<str:name>", invoices.OneInvoice.as_view(), name="api_invoice"),
    path("invoices/<str:name>/lines", invoices.Lines.as_view(), name="api_invoice_lines"),
    path("invoices/<str:name>/payments", charges.CardPayments.as_view(), name="api_invoice_payments"),
    path(
        "invoices/<str:name>/payment-links",
        payment_links.PaymentLinks.as_view(),
        name="api_invoice_payment_links",
    ),
    path("payment-links/<str:name>", payment_links.OnePaymentLink.as_view(), name="api_payment_link"),
    *(
        path(f"invoices/<str:name>/{file}", view, name=f"api_invoice_{file.partition('.')[0]}")
        for file, view in invoices.FILES.items()
    ),
    *operator_routes,
]
