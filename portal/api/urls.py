"""The addresses of the API: its schema, and its resources."""

from __future__ import annotations

from django.urls import path

from portal.api.published import Schema
from portal.api.routes import routes

urlpatterns = [path("openapi.json", Schema.as_view(), name="api_schema"), *routes]
