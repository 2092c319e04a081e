from django.apps import AppConfig, apps


class OpsConfig(AppConfig):
    name = "portal.ops"
    label = "ops"
    verbose_name = "Operation"

    def ready(self) -> None:
        apps.get_app_config("pghistory").verbose_name = "History"  # as the administration calls it
