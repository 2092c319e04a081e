"""The addresses of what operators read and write."""

from __future__ import annotations

from django.urls import URLPattern, path

from portal.api.resources.operators import (
    acts,
    bills,
    closes,
    clusters,
    connections,
    departures,
    files,
    history,
    invitations,
    meters,
    money,
    operations,
    ownerships,
    plans,
    proof,
    receivables,
    sign_ups,
    tenant_keys,
    tenants,
    waste_rules,
)

routes: list[URLPattern] = [
    path("tenants", tenants.Tenants.as_view(), name="api_tenants"),
    path("tenants/<str:name>", tenants.OneTenant.as_view(), name="api_tenant"),
    path("tenants/<str:name>/members", tenants.Members.as_view(), name="api_tenant_members"),
    path(
        "tenants/<str:name>/subscriptions", tenants.Subscriptions.as_view(), name="api_tenant_subscriptions"
    ),
    path("tenants/<str:name>/members/<str:email>", tenants.OneMember.as_view(), name="api_tenant_member"),
    path("tenants/<str:name>/invitations", invitations.Invitations.as_view(), name="api_tenant_invitations"),
    path(
        "tenants/<str:name>/invitations/<str:invitation>",
        invitations.OneInvitation.as_view(),
        name="api_tenant_invitation",
    ),
    path("sign-ups", sign_ups.SignUps.as_view(), name="api_sign_ups"),
    path("sign-ups/<str:name>", sign_ups.OneSignUp.as_view(), name="api_sign_up"),
    path("sign-ups/<str:name>/decisions", sign_ups.SignUpDecisions.as_view(), name="api_sign_up_decisions"),
    path("sign-up-policy", sign_ups.OneSignUpPolicy.as_view(), name="api_sign_up_policy"),
    path("departures", departures.Departures.as_view(), name="api_departures"),
    path("departures/<str:name>", departures.OneDeparture.as_view(), name="api_departure_of_tenant"),
    path(
        "departures/<str:name>/endings", departures.DepartureEndings.as_view(), name="api_departure_endings"
    ),
    path("ownerships", ownerships.Ownerships.as_view(), name="api_ownerships"),
    path("ownerships/<str:name>", ownerships.OneOwnership.as_view(), name="api_ownership"),
    path("payers", ownerships.Payers.as_view(), name="api_payers"),
    path("payers/<str:name>", ownerships.OnePayer.as_view(), name="api_payer"),
    path("meters", meters.Meters.as_view(), name="api_meters"),
    path("meters/<str:name>", meters.OneMeter.as_view(), name="api_meter"),
    path("waste-rules", waste_rules.WasteRules.as_view(), name="api_waste_rules"),
    path("waste-rules/<str:name>", waste_rules.OneWasteRule.as_view(), name="api_waste_rule"),
    path("plans", plans.Plans.as_view(), name="api_plans"),
    path("plans/<str:name>", plans.OnePlan.as_view(), name="api_plan"),
    path("plans/<str:name>/versions", plans.Versions.as_view(), name="api_plan_versions"),
    path("plans/<str:name>/versions/<str:day>", plans.OneVersion.as_view(), name="api_plan_version"),
    path(
        "plans/<str:name>/versions/<str:day>/price-corrections",
        plans.PriceCorrections.as_view(),
        name="api_price_corrections",
    ),
    path("plans/<str:name>/prices", plans.TenantPrices.as_view(), name="api_plan_prices"),
    path("clusters", clusters.Clusters.as_view(), name="api_clusters"),
    path("clusters/<str:name>", clusters.OneCluster.as_view(), name="api_cluster"),
    path("clusters/<str:name>/pulls", clusters.ClusterPulls.as_view(), name="api_cluster_pulls"),
    path("clusters/<str:name>/bills/<str:file>", bills.ClusterBill.as_view(), name="api_cluster_bill"),
    path("clusters/<str:name>/files/<str:file>", files.ClusterFile.as_view(), name="api_cluster_file"),
    path(
        "clusters/<str:name>/connection", connections.OneConnection.as_view(), name="api_cluster_connection"
    ),
    path("history", history.History.as_view(), name="api_history"),
    path("clusters/<str:name>/acts", acts.Acts.as_view(), name="api_cluster_acts"),
    path("tenants/<str:name>/keys", tenant_keys.TenantKeys.as_view(), name="api_tenant_keys"),
    path("pulls", clusters.Pulls.as_view(), name="api_pulls"),
    path("quarantine", clusters.Quarantine.as_view(), name="api_quarantine"),
    path("unassigned-usage", clusters.UnassignedUsage.as_view(), name="api_unassigned_usage"),
    path("receivables", receivables.Receivables.as_view(), name="api_receivables"),
    path("closes", closes.Closes.as_view(), name="api_closes"),
    path("closes/<str:name>", closes.OneClose.as_view(), name="api_close"),
    path("closes/<str:name>/results", closes.CloseResults.as_view(), name="api_close_results"),
    path("approvals", closes.Approvals.as_view(), name="api_approvals"),
    path("approvals/<str:name>/decisions", closes.Decisions.as_view(), name="api_approval_decisions"),
    path("operations/<str:name>", operations.Operations.as_view(), name="api_operation"),
    path("pulls/<str:name>", clusters.OnePull.as_view(), name="api_pull"),
    path("invoices/<str:name>/credit-notes", money.CreditNotes.as_view(), name="api_invoice_credit_notes"),
    path("invoices/<str:name>/write-offs", money.WriteOffs.as_view(), name="api_invoice_write_offs"),
    path(
        "invoices/<str:name>/manual-payments",
        money.ManualPayments.as_view(),
        name="api_invoice_manual_payments",
    ),
    path("wallets/<str:name>/grants", money.Grants.as_view(), name="api_wallet_grants"),
    path("tenants/<str:name>/dunning-pauses", money.Pauses.as_view(), name="api_tenant_dunning_pauses"),
    path("proof", proof.Proof.as_view(), name="api_proof"),
]
