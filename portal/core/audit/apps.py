from django.apps import AppConfig


class AuditConfig(AppConfig):
    name = "portal.core.audit"
    label = "audit"
    verbose_name = "History"  # as the administration calls it
