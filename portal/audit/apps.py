from __future__ import annotations

from typing import Any

from django.apps import AppConfig


class AuditConfig(AppConfig):
    name = "portal.audit"
    label = "audit"
    verbose_name = "Audit"

    def ready(self) -> None:
        _spare_migrations()


def _spare_migrations() -> None:
    """Let triggers change a model's state in migrations without rendering it, and all that it is related to, anew.

    A trigger is no part of a rendered model. There are hundreds of them, four for each model with a history, and
    rendering after each took most of the two minutes in which a new database was made.
    """
    from pgtrigger import migrations

    for operation in (migrations.AddTrigger, migrations.RemoveTrigger):
        operation.state_forwards = _unrendered(operation.state_forwards)  # type: ignore[method-assign]  # the library's own, wrapped


def _unrendered(forwards: Any) -> Any:
    def state_forwards(self: Any, app_label: str, state: Any) -> None:
        state.reload_model = lambda *_, **__: None  # in place of the method, for this one call
        try:
            forwards(self, app_label, state)
        finally:
            del state.reload_model

    return state_forwards
