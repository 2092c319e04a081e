from django.apps import AppConfig


class TenantsConfig(AppConfig):
    name = "portal.core.tenants"
    label = "tenants"
    verbose_name = "Tenants and people"
