"""What keeps a connection's secrets from resting in clear, and from going where they were not meant for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from django.core.exceptions import ValidationError

if TYPE_CHECKING:
    from clusters.models.connection import Connection
    from clusters.models.endpoint import Address

PUBLIC = ("ca", "client_certificate")
"""Columns of PEM that rest in clear, and go into the history."""

ADDRESS = ("base_url", "unix_socket")


def holds_private_key(pem: str) -> str:
    """What is wrong with text that is to rest in clear, after the name of its field; "" for nothing."""
    if "PRIVATE KEY" not in pem:
        return ""
    return (
        "holds a private key, which would rest in clear: leave only certificates in it, "
        "and put the key into client_key, which rests encrypted."
    )


def refuse_private_keys(row: Connection) -> None:
    """Raises ValidationError."""
    wrong = {name: problem for name in PUBLIC if (problem := holds_private_key(getattr(row, name)))}
    if wrong:
        raise ValidationError({name: f"This {problem}" for name, problem in wrong.items()})


def entered_for_elsewhere(
    row: Address, changes: Mapping[str, object], *, entered: Collection[str], secrets: Collection[str]
) -> list[str]:
    """Secrets that the stored row would send to another address than they were entered for.

    `said` has the columns that change; `given` names what is entered or taken away together with them.
    Whoever may change an address could otherwise have the secrets sent to a host of their own.
    """
    if all(changes.get(name, getattr(row, name)) == getattr(row, name) for name in ADDRESS):
        return []
    return [name for name in secrets if getattr(row, name) and name not in entered]
