"""The administration as an application: its tables are loaded with the addresses, or where they are checked.

Workers and commands have neither, and are 5 MiB smaller.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.apps import SimpleAdminConfig
from django.core.checks import CheckMessage
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, URLResolver, reverse

from portal.admin_groups import GROUPS


class Site(admin.AdminSite):
    """Knows the tables as soon as anybody asks what it has, and lists them by task."""

    index_title = "Administration"

    def get_urls(self) -> list[URLPattern | URLResolver]:
        admin.autodiscover()
        return super().get_urls()

    def check(self, app_configs: Any) -> list[CheckMessage]:
        admin.autodiscover()
        return super().check(app_configs)

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[Any]:
        """The groups with the tables that the person may see, in the place of one list for each application."""
        tables = {
            table["model"]._meta.label: table
            for app in self._build_app_dict(request, app_label).values()
            for table in app["models"]
        }
        start = reverse("admin:index", current_app=self.name)
        return [
            {
                "name": group.title,
                "app_label": group.key,
                "app_url": f"{start}#{group.key}",
                "has_module_perms": True,
                "models": shown,
                "purpose": group.purpose,
                "pages": [(reverse(name), title) for name, title in group.pages],
            }
            for group in GROUPS
            if (shown := [tables[label] for label in group.tables if label in tables])
        ]

    def app_index(  # type: ignore[override]  # Django expects a page
        self, request: HttpRequest, app_label: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """An application is no task: its tables stand on the start page."""
        del request, app_label, extra_context
        return HttpResponseRedirect(reverse("admin:index", current_app=self.name))


class Admin(SimpleAdminConfig):
    default_site = "portal.admin_app.Site"
