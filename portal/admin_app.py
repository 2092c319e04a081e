"""The administration as an application: its tables are loaded with the addresses, or where they are checked.

Workers and commands have neither, and are 5 MiB smaller.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.apps import SimpleAdminConfig
from django.core.checks import CheckMessage
from django.urls import URLPattern, URLResolver


class Site(admin.AdminSite):
    """Knows the tables as soon as anybody asks what it has."""

    def get_urls(self) -> list[URLPattern | URLResolver]:
        admin.autodiscover()
        return super().get_urls()

    def check(self, app_configs: Any) -> list[CheckMessage]:
        admin.autodiscover()
        return super().check(app_configs)


class Admin(SimpleAdminConfig):
    default_site = "portal.admin_app.Site"
