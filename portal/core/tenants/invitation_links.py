"""Links of invitations: the number and the generation of one, signed with SECRET_KEY.

No row holds a link, so whoever reads the database accepts nothing.
"""

from __future__ import annotations

from django.conf import settings
from django.core.signing import BadSignature, Signer

from portal.core.tenants.models import Invitation

_signer = Signer(salt="portal.invitation")


def path_of(invitation: Invitation) -> str:
    """The address of the page that accepts it."""
    return f"/invitations/{_signer.sign(f'{invitation.pk}.{invitation.generation}')}/"


def url_of(invitation: Invitation) -> str:
    """As it stands in the mail."""
    return f"{settings.PORTAL_URL}{path_of(invitation)}"


def read(token: str) -> tuple[int, int] | None:
    """Number and generation; None for what we have not signed."""
    try:
        number, _, generation = _signer.unsign(token).partition(".")
    except BadSignature:
        return None
    return int(number), int(generation)
