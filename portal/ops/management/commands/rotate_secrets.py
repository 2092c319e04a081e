"""`rotate_secrets`: encrypt every stored secret with the first of CLUSTERTAB_SECRET_KEYS."""

from __future__ import annotations

from typing import Any, ClassVar

from allauth.mfa.models import Authenticator
from django.apps import apps
from django.core.management.base import CommandParser
from django.db import transaction
from django.db.models import Model

from portal.core.audit import acting_as
from portal.core.vault import SealedField, VaultError
from portal.core.vault.sealing import Sealed
from portal.ops.cli import Answer, OperatorCommand


class Command(OperatorCommand):
    help = "Encrypt every stored secret with the first of CLUSTERTAB_SECRET_KEYS; then the others can go."
    refusals: ClassVar[tuple[type[Exception], ...]] = (VaultError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--dry-run", action="store_true", help="only say whether the keys open all of them"
        )

    def answer(self, *, dry_run: bool = False, **_: Any) -> Answer:
        with acting_as("rotate_secrets"), transaction.atomic():
            secrets = sum(_rotate(model) for model in apps.get_models()) + _rotate_second_factors()
            transaction.set_rollback(dry_run)
        noun = "secret" if secrets == 1 else "secrets"
        if dry_run:
            return Answer(
                {"secrets": secrets}, f"The keys open {secrets} stored {noun}. Nothing was changed."
            )
        verb = "is" if secrets == 1 else "are"
        return Answer({"secrets": secrets}, f"{secrets} {noun} {verb} encrypted with the first key now.")


def _rotate(model: type[Model]) -> int:
    """All rows or none: a secret that no key opens leaves everything as it was."""
    columns = [field.name for field in model._meta.get_fields() if isinstance(field, SealedField)]
    if not columns:
        return 0
    count = 0
    for row in model._default_manager.select_for_update(no_key=True).order_by("pk"):
        names = [name for name in columns if getattr(row, name)]
        for name in names:
            setattr(row, name, getattr(row, name).rotated())
        row.save(update_fields=names)
        count += len(names)
    return count


def _rotate_second_factors() -> int:
    """What apps share with us, and what recovery codes are made of: `portal.ops.accounts.SecondFactor`."""
    count = 0
    rows = Authenticator.objects.exclude(type=Authenticator.Type.WEBAUTHN)  # whose public keys are no secret
    for row in rows.select_for_update(no_key=True).order_by("pk"):
        names = [name for name in ("secret", "seed") if row.data.get(name)]
        for name in names:
            row.data[name] = Sealed(row.data[name]).rotated().token
        row.save(update_fields=["data"])
        count += len(names)
    return count
