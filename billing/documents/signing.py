"""The operator's signature under evidence: Ed25519, by a key that rests encrypted and can be rotated."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import datetime
from hashlib import sha256

from django.db import connection, transaction
from django.views.decorators.debug import sensitive_variables

from billing.models import SigningKey
from portal.core.vault import Sealed, seal


def current_key(*, moment: datetime) -> SigningKey:
    """The key that signs; made at `moment` where there is none yet, once however many ask. Raises VaultError."""
    key = SigningKey.objects.filter(until=None).first()
    if key is None:
        SigningKey.objects.bulk_create([_new_key(moment)], ignore_conflicts=True)
        key = SigningKey.objects.get(until=None)
    return key


@transaction.atomic
def rotate_key(*, moment: datetime) -> SigningKey:
    """Have a new key sign from `moment` on; asked again, another one. Raises VaultError.

    The public key before it is kept, and goes on verifying what it signed; its private part is deleted.
    """
    with connection.cursor() as cursor:
        cursor.execute("LOCK TABLE billing_signingkey IN SHARE ROW EXCLUSIVE MODE")  # one rotation at a time
    for key in SigningKey.objects.filter(until=None):
        key.until, key.private = moment, Sealed("")
        key.save(update_fields=["until", "private"])
    key = _new_key(moment)
    key.save()
    return key


def sign(content: bytes, *, key: SigningKey) -> str:
    """The signature in base64. The same key gives the same content the same signature. Raises VaultError."""
    return signer(key)(content)


@sensitive_variables()
def signer(key: SigningKey) -> Callable[[bytes], str]:
    """As `sign`, for many: the key is opened once."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,  # 9 MiB, which pages do without
    )

    private = Ed25519PrivateKey.from_private_bytes(b64decode(key.private.reveal()))
    return lambda content: b64encode(private.sign(content)).decode()


def verifies(content: bytes, *, signature: bytes, public: bytes) -> bool:
    """Whether the holder of the public key signed it."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, content)
    except (InvalidSignature, ValueError):
        return False
    return True


@sensitive_variables()
def _new_key(moment: datetime) -> SigningKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Ed25519PrivateKey.generate()
    public = private.public_key().public_bytes_raw()
    return SigningKey(
        name=sha256(public).hexdigest()[:16],
        public=b64encode(public).decode(),
        private=seal(b64encode(private.private_bytes_raw()).decode()),
        since=moment,
    )
