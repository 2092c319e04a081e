"""The addresses of the pages. Everything under /t/<slug>/ belongs to that tenant."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path

from portal.web.account import account, account_csv, documents
from portal.web.api_keys import api_keys, change_api_keys, operator_api_keys
from portal.web.api_reference import api_area, api_reference
from portal.web.api_server import api_server
from portal.web.bank_transfer import one_transfer
from portal.web.billing_settings import (
    billing_settings,
    change_billing_settings,
    operator_billing_settings,
)
from portal.web.bills import cluster_bills
from portal.web.blocks import account_blocks
from portal.web.brand import brand_logo, brand_styles, operator_brand
from portal.web.budget_periods import budget_periods
from portal.web.budgets import budgets, change_budget, operator_budgets
from portal.web.close_drafts import draft_documents, draft_pdf, drafts
from portal.web.close_schedule import close_schedule
from portal.web.closing import close
from portal.web.clusters import cluster, connection
from portal.web.cost_explorer import cost_explorer, cost_explorer_csv
from portal.web.documentation import documentation, documentation_page
from portal.web.downloads import csv, evidence, line_csv, pdf, xml
from portal.web.efficiency import efficiency, efficiency_csv, efficiency_waste
from portal.web.exports import focus_export, ledger_export
from portal.web.focus_exports import operator_focus_exports, operator_focus_file
from portal.web.history import history, history_csv, operator_history, operator_history_csv
from portal.web.home import home, tenants
from portal.web.idle_jobs import choose_waste_rule, idle_jobs_page, operator_idle_jobs
from portal.web.invitations import invitation
from portal.web.invoice_acts import credit_invoice, reverse_write_off, write_off
from portal.web.invoices import invoice, invoices, line
from portal.web.job_acts import act_on_job
from portal.web.job_check import job_check
from portal.web.jobs import job, jobs, jobs_csv
from portal.web.limits import operator_limits
from portal.web.live import live
from portal.web.meters import operator_meters
from portal.web.nodes import cluster_nodes
from portal.web.notifications import (
    change_notifications,
    notifications,
    operator_notifications,
)
from portal.web.onboarding import onboarding
from portal.web.operator import clusters, quarantine, unassigned
from portal.web.operator_failures import operator_service_credits
from portal.web.operator_home import operator_home
from portal.web.operator_tenant import operator_tenant
from portal.web.operators import operator_people
from portal.web.overview import overview
from portal.web.own_data import own_data
from portal.web.own_language import own_language
from portal.web.own_plan import own_plan
from portal.web.payment import (
    add_card,
    back,
    change_method,
    pay,
    payment,
    set_automatic,
    stopped,
)
from portal.web.payment_links import (
    change_payment_links,
    payment_link,
    payment_link_back,
    payment_link_card,
    payment_link_pdf,
    payment_link_stopped,
)
from portal.web.payouts import payout, payout_csv
from portal.web.plan_change import choose_plan, plan_change
from portal.web.plan_editor import plan_editor, plan_preview
from portal.web.plans import plan, plan_list
from portal.web.quotes import job_quote
from portal.web.receivables import receivables
from portal.web.reconciliation import reconciliation
from portal.web.reports import reports, reports_csv
from portal.web.saved_card import confirm, pay_open, pay_saved
from portal.web.sealed_months import sealed_months
from portal.web.search import operator_search, tenant_search
from portal.web.served_models import operator_models
from portal.web.sign_up import sign_up
from portal.web.sign_ups import let_leave, operator_sign_ups
from portal.web.signing_keys import signing_keys
from portal.web.spend_change import spend_change
from portal.web.status import status
from portal.web.support_views import end_support_view, support_view
from portal.web.team import change_team, leave_team, operator_team, team_page
from portal.web.tenant_acts import resume_tenant, suspend_tenant
from portal.web.tenant_credit import grant_credit
from portal.web.tenant_plan import change_plan
from portal.web.tenant_tokens import import_tokens
from portal.web.top_ups import set_automatic_top_up, top_up
from portal.web.transfers import transfers
from portal.web.usage_acts import assign_account, dismiss_rows, retry_row
from portal.web.usage_files import usage_files
from portal.web.wallets import statement, statement_csv, wallet, wallets
from portal.web.waste_jobs import operator_waste
from portal.web.watermark import reset_watermark
from portal.web.webhooks import (
    change_webhooks,
    operator_webhook,
    operator_webhooks,
    webhook,
    webhooks,
)

tenant_patterns: list[URLPattern] = [
    path("", overview, name="overview"),
    path("costs/", cost_explorer, name="cost_explorer"),
    path("costs/csv", cost_explorer_csv, name="cost_explorer_csv"),
    path("costs/change/", spend_change, name="spend_change"),
    path("search/", tenant_search, name="tenant_search"),
    path("live/", live, name="live"),
    path("status/", status, name="status"),
    path("jobs/", jobs, name="jobs"),
    path("plan/", own_plan, name="plan"),
    path("plan/change/", plan_change, name="plan_change"),
    path("plan/choose/", choose_plan, name="choose_plan"),
    path("jobs/csv", jobs_csv, name="jobs_csv"),
    path("quote/", job_quote, name="quote"),
    path("jobs/<int:record>/", job, name="job"),
    path("team/", team_page, name="team"),
    path("team/change/", change_team, name="change_team"),
    path("team/leave/", leave_team, name="leave_team"),
    path("billing/", billing_settings, name="billing_settings"),
    path("billing/change/", change_billing_settings, name="change_billing_settings"),
    path("notifications/", notifications, name="notifications"),
    path("notifications/change/", change_notifications, name="change_notifications"),
    path("history/", history, name="history"),
    path("history/csv", history_csv, name="history_csv"),
    path("api-keys/", api_keys, name="api_keys"),
    path("api-keys/change/", change_api_keys, name="change_api_keys"),
    path("webhooks/", webhooks, name="webhooks"),
    path("webhooks/change/", change_webhooks, name="change_webhooks"),
    path("webhooks/at/<slug:hook>/", webhook, name="webhook"),
    path("budgets/", budgets, name="budgets"),
    path("budgets/check/", job_check, name="job_check"),
    path("budgets/change/", change_budget, name="change_budget"),
    path("budgets/at/<slug:budget>/", budget_periods, name="budget_periods"),
    path("efficiency/", efficiency, name="efficiency"),
    path("efficiency/csv", efficiency_csv, name="efficiency_csv"),
    path("efficiency/waste/<slug:finding>/", efficiency_waste, name="efficiency_waste"),
    path("idle-jobs/", idle_jobs_page, name="idle_jobs"),
    path("idle-jobs/choose/", choose_waste_rule, name="choose_waste_rule"),
    path("wallets/", wallets, name="wallets"),
    path("wallets/<int:wallet>/", wallet, name="wallet"),
    path("wallets/<int:wallet>/top-up/", top_up, name="wallet_top_up"),
    path("wallets/<int:wallet>/automatic/", set_automatic_top_up, name="wallet_automatic"),
    path("wallets/<int:wallet>/statement/", statement, name="wallet_statement"),
    path("wallets/<int:wallet>/statement/csv", statement_csv, name="wallet_statement_csv"),
    path("payment/", payment, name="payment"),
    path("payment/card/", add_card, name="payment_card"),
    path("payment/automatic/", set_automatic, name="payment_automatic"),
    path("payment/methods/<int:method>/", change_method, name="payment_method"),
    path("payment/confirm/<uuid:attempt>/", confirm, name="payment_confirm"),
    path("payment/back/", back, name="payment_back"),
    path("payment/stopped/", stopped, name="payment_stopped"),
    path("exports/focus", focus_export, name="focus_export"),
    path("account/", account, name="account"),
    path("account/csv", account_csv, name="account_csv"),
    path("account/documents", documents, name="account_documents"),
    path("invoices/", invoices, name="invoices"),
    path("invoices/pay/", pay_open, name="invoices_pay"),
    # Numbers issued before prefixes were checked (migration 0043) may have a slash in them: the longest address
    # stands first.
    path("invoices/<path:number>/lines/<int:position>/", line, name="invoice_line_jobs"),
    path("invoices/<path:number>/lines/<int:position>/csv", line_csv, name="invoice_line_csv"),
    path("invoices/<path:number>/links/", change_payment_links, name="change_payment_links"),
    path("invoices/<path:number>/pay/", pay, name="invoice_pay"),
    path("invoices/<path:number>/pay-saved/", pay_saved, name="invoice_pay_saved"),
    path("invoices/<path:number>/pdf", pdf, name="invoice_pdf"),
    path("invoices/<path:number>/xml", xml, name="invoice_xml"),
    path("invoices/<path:number>/csv", csv, name="invoice_csv"),
    path("invoices/<path:number>/evidence", evidence, name="invoice_evidence"),
    path("invoices/<path:number>/", invoice, name="invoice"),
]

urlpatterns: list[URLPattern | URLResolver] = [
    path("", home, name="home"),
    path(".well-known/clustertab-signing-keys.json", signing_keys, name="signing_keys"),
    path("tenants/", tenants, name="tenants"),
    path("reference/docs/", documentation, name="documentation"),
    path("reference/docs/<path:page>/", documentation_page, name="documentation_page"),
    path("accounts/language/", own_language, name="account_language"),
    path("your-data/", own_data, name="own_data"),
    path("reference/api/", api_reference, name="api_reference"),
    path("reference/api/<slug:area>/", api_area, name="api_area"),
    path("t/<slug:slug>/", include(tenant_patterns)),
    path("invitations/<str:token>/", invitation, name="invitation"),
    path("pay/<str:token>/", payment_link, name="payment_link"),
    path("pay/<str:token>/pdf", payment_link_pdf, name="payment_link_pdf"),
    path("pay/<str:token>/card/", payment_link_card, name="payment_link_card"),
    path("pay/<str:token>/back/", payment_link_back, name="payment_link_back"),
    path("pay/<str:token>/stopped/", payment_link_stopped, name="payment_link_stopped"),
    path("sign-up/", sign_up, name="sign_up"),
    path("operator/sign-ups/", operator_sign_ups, name="operator_sign_ups"),
    path("operator/tenants/<slug:tenant>/leave/", let_leave, name="operator_let_leave"),
    path("operator/", operator_home, name="operator_home"),
    path("operator/search/", operator_search, name="operator_search"),
    path("operator/set-up/", onboarding, name="operator_onboarding"),
    path("operator/notifications/", operator_notifications, name="operator_notifications"),
    path("operator/brand/", operator_brand, name="operator_brand"),
    path("brand/<slug:name>.css", brand_styles, name="brand_styles"),
    path("brand/<slug:digest>.png", brand_logo, name="brand_logo"),
    path("operator/people/", operator_people, name="operator_people"),
    path("operator/tenants/<slug:tenant>/", operator_tenant, name="operator_tenant"),
    path("operator/tenants/<slug:tenant>/suspend/", suspend_tenant, name="operator_suspend_tenant"),
    path("operator/tenants/<slug:tenant>/resume/", resume_tenant, name="operator_resume_tenant"),
    path("operator/tenants/<slug:tenant>/grant/", grant_credit, name="operator_grant_credit"),
    path("operator/tenants/<slug:tenant>/tokens/", import_tokens, name="operator_import_tokens"),
    path("operator/tenants/<slug:tenant>/plan/", change_plan, name="operator_change_plan"),
    path(
        "operator/tenants/<slug:tenant>/invoices/<path:number>/credit/",
        credit_invoice,
        name="operator_credit_invoice",
    ),
    path(
        "operator/tenants/<slug:tenant>/invoices/<path:number>/write-off/",
        write_off,
        name="operator_write_off",
    ),
    path(
        "operator/tenants/<slug:tenant>/invoices/<path:number>/write-off/reverse/",
        reverse_write_off,
        name="operator_reverse_write_off",
    ),
    path(
        "operator/tenants/<slug:tenant>/jobs/<int:record>/<slug:kind>/", act_on_job, name="operator_job_act"
    ),
    path("operator/tenants/<slug:tenant>/look/", support_view, name="support_view"),
    path("operator/look/end/", end_support_view, name="end_support_view"),
    path(
        "operator/tenants/<slug:tenant>/billing/", operator_billing_settings, name="operator_billing_settings"
    ),
    path("operator/tenants/<slug:tenant>/team/", operator_team, name="operator_team"),
    path("operator/history/", operator_history, name="operator_history"),
    path("operator/history/csv", operator_history_csv, name="operator_history_csv"),
    path("operator/api-keys/", operator_api_keys, name="operator_api_keys"),
    path("operator/webhooks/", operator_webhooks, name="operator_webhooks"),
    path("operator/webhooks/<slug:hook>/", operator_webhook, name="operator_webhook"),
    path("operator/budgets/", operator_budgets, name="operator_budgets"),
    path("operator/limits/", operator_limits, name="operator_limits"),
    path("operator/meters/", operator_meters, name="operator_meters"),
    path("operator/service-credits/", operator_service_credits, name="operator_service_credits"),
    path("operator/idle-jobs/", operator_idle_jobs, name="operator_idle_jobs"),
    path("operator/clusters/", clusters, name="operator_clusters"),
    path("operator/clusters/<path:name>/connection/", connection, name="operator_connection"),
    path("operator/clusters/<path:name>/api-server/", api_server, name="operator_api_server"),
    path("operator/clusters/<path:name>/nodes/", cluster_nodes, name="operator_nodes"),
    path("operator/clusters/<path:name>/watermark/", reset_watermark, name="operator_watermark"),
    path("operator/clusters/<path:name>/bills/", cluster_bills, name="operator_bills"),
    path("operator/clusters/<path:name>/files/", usage_files, name="operator_usage_files"),
    path("operator/clusters/<path:name>/blocks/", account_blocks, name="operator_blocks"),
    path("operator/clusters/<path:name>/", cluster, name="operator_cluster"),
    path("operator/plans/", plan_list, name="operator_plans"),
    path("operator/plans/<slug:name>/", plan, name="operator_plan"),
    path("operator/plan-editor/", plan_editor, name="operator_plan_editor"),
    path("operator/plan-editor/<int:plan_preview>/", plan_preview, name="operator_plan_preview"),
    path("operator/close/", close, name="operator_close"),
    path("operator/close/schedule/", close_schedule, name="operator_close_schedule"),
    path("operator/close/<str:month>/<slug:tenant>/", drafts, name="operator_drafts"),
    path(
        "operator/close/<str:month>/<slug:tenant>/<int:preview>/",
        draft_documents,
        name="operator_draft_documents",
    ),
    path(
        "operator/close/<str:month>/<slug:tenant>/<int:preview>/<int:place>/pdf",
        draft_pdf,
        name="operator_draft_pdf",
    ),
    path("operator/bank-transfers/", transfers, name="operator_transfers"),
    path("operator/bank-transfers/<int:transfer>/", one_transfer, name="operator_transfer"),
    path("operator/receivables/", receivables, name="operator_receivables"),
    path("operator/reports/", reports, name="operator_reports"),
    path("operator/reports/models/", operator_models, name="operator_models"),
    path("operator/reports/csv", reports_csv, name="operator_reports_csv"),
    path("operator/reports/waste/<slug:finding>/", operator_waste, name="operator_waste"),
    path("operator/exports/focus/", operator_focus_exports, name="operator_focus_exports"),
    path("operator/exports/focus/<int:export>/file", operator_focus_file, name="operator_focus_file"),
    path("operator/exports/ledger", ledger_export, name="operator_ledger_export"),
    path("operator/unassigned/assign/", assign_account, name="operator_assign"),
    path("operator/quarantine/dismiss/", dismiss_rows, name="operator_dismiss"),
    path("operator/quarantine/<int:row>/retry/", retry_row, name="operator_retry"),
    path("operator/unassigned/", unassigned, name="operator_unassigned"),
    path("operator/quarantine/", quarantine, name="operator_quarantine"),
    path("operator/sealed-months/", sealed_months, name="operator_sealed_months"),
    path("operator/reconciliation/", reconciliation, name="operator_reconciliation"),
    path("operator/reconciliation/payouts/<str:payout>/", payout, name="operator_payout"),
    path("operator/reconciliation/payouts/<str:payout>/csv", payout_csv, name="operator_payout_csv"),
]
