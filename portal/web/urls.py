"""The addresses of the pages. Everything under /t/<slug>/ belongs to that tenant."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path

from portal.web.clusters import cluster, connection
from portal.web.home import home, tenants
from portal.web.invoices import csv, invoice, invoices, line, line_csv, pdf
from portal.web.jobs import job, jobs
from portal.web.live import live
from portal.web.operator import clusters, quarantine, unowned
from portal.web.overview import overview

tenant_patterns: list[URLPattern] = [
    path("", overview, name="overview"),
    path("live/", live, name="live"),
    path("jobs/", jobs, name="jobs"),
    path("jobs/<int:record>/", job, name="job"),
    path("invoices/", invoices, name="invoices"),
    path("invoices/<str:number>/", invoice, name="invoice"),
    path("invoices/<str:number>/pdf", pdf, name="invoice_pdf"),
    path("invoices/<str:number>/csv", csv, name="invoice_csv"),
    path("invoices/<str:number>/lines/<int:position>/", line, name="invoice_line_jobs"),
    path("invoices/<str:number>/lines/<int:position>/csv", line_csv, name="invoice_line_csv"),
]

urlpatterns: list[URLPattern | URLResolver] = [
    path("", home, name="home"),
    path("tenants/", tenants, name="tenants"),
    path("t/<slug:slug>/", include(tenant_patterns)),
    path("operator/clusters/", clusters, name="operator_clusters"),
    path("operator/clusters/<path:name>/connection/", connection, name="operator_connection"),
    path("operator/clusters/<path:name>/", cluster, name="operator_cluster"),
    path("operator/unowned/", unowned, name="operator_unowned"),
    path("operator/quarantine/", quarantine, name="operator_quarantine"),
]
