from django.apps import AppConfig


class OutboxConfig(AppConfig):
    name = "portal.core.outbox"
    label = "outbox"
    verbose_name = "Outbox"
