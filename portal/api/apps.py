"""The app of the REST API: its keys, and the answers it repeats."""

from __future__ import annotations

from django.apps import AppConfig


class ApiConfig(AppConfig):
    name = "portal.api"
    label = "api"
    verbose_name = "API"
    default_auto_field = "django.db.models.BigAutoField"
