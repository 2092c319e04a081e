import sys

from django.apps import AppConfig
from django.conf import settings


class OpsConfig(AppConfig):
    name = "portal.ops"
    label = "ops"
    verbose_name = "Operation"

    def ready(self) -> None:
        """Every process comes by here, before it forks. What is off is not loaded."""
        if settings.TRACING:
            from portal.ops import tracing

            tracing.start()
        else:
            # Redis's client loads it wherever it is installed: 4 MiB in each process.
            sys.modules.setdefault("opentelemetry.sdk", None)  # type: ignore[arg-type]  # Python's way to say absent
        if settings.SENTRY_DSN:
            from portal.ops import error_reports

            error_reports.start(settings.SENTRY_DSN)
