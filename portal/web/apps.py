from django.apps import AppConfig

from portal.languages import compile_catalogs


class WebConfig(AppConfig):
    name = "portal.web"
    label = "web"
    verbose_name = "Pages"

    def ready(self) -> None:
        compile_catalogs()
