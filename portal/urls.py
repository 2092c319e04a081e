"""The URL table: each area brings its own."""

from __future__ import annotations

from allauth.account.decorators import secure_admin_login
from django.contrib import admin
from django.urls import include, path

from portal.admin import no_page_of_an_object
from portal.ops import accounts, health
from portal.ops.metrics.view import metrics
from portal.ops.stripe_hook import hook

admin.site.site_header = admin.site.site_title = "ClusterTab"
admin.site.login = secure_admin_login(admin.site.login)  # type: ignore[method-assign]  # one sign-in page, one rate limit

urlpatterns = [
    path("healthz", health.alive, name="healthz"),
    path("readyz", health.ready, name="readyz"),
    path("metrics", metrics, name="metrics"),
    path("hooks/stripe/", hook, name="stripe_hook"),
    path("admin/r/<path:where>", no_page_of_an_object),
    path("admin/", admin.site.urls),
    path("accounts/", include(accounts.urlpatterns)),
    path("api/v1/", include("portal.api.urls")),
    path("", include("portal.web.urls")),
]
