"""Encryption of single texts with the instance's keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings
from django.views.decorators.debug import sensitive_variables

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet

NO_KEYS = (
    "There is no key for stored secrets: put one into CLUSTERTAB_SECRET_KEYS, the same for every process "
    "(docs/reference/settings.md has the command that makes one)."
)
NOT_A_KEY = "CLUSTERTAB_SECRET_KEYS holds something that is no key: each is 32 bytes in URL-safe base64."
WRONG_KEYS = (
    "A stored secret cannot be decrypted: none of CLUSTERTAB_SECRET_KEYS is the key that encrypted it. "
    "Add that key to the list, or enter the secret anew."
)


class VaultError(Exception):
    """A secret cannot be kept or read; the message is one sentence that says what to do."""


class Sealed:
    """A text as it rests. It is decrypted only when somebody asks, and printed never."""

    __slots__ = ("_token",)

    def __init__(self, token: str) -> None:
        self._token = token  # "" for the empty text

    @property
    def token(self) -> str:
        """The encrypted text, for the database."""
        return self._token

    @sensitive_variables()
    def reveal(self) -> str:
        """The text. Raises VaultError where the keys are not there or not the right ones."""
        if not self._token:
            return ""
        from cryptography.fernet import InvalidToken  # 9 MiB, which pages do without

        try:
            return _keys().decrypt(self._token).decode()
        except InvalidToken:
            raise VaultError(WRONG_KEYS) from None

    def rotated(self) -> Sealed:
        """The same text under the first key. Raises VaultError as `reveal` does."""
        from cryptography.fernet import InvalidToken

        try:
            return Sealed(_keys().rotate(self._token).decode()) if self._token else self
        except InvalidToken:
            raise VaultError(WRONG_KEYS) from None

    def __bool__(self) -> bool:
        return bool(self._token)

    def __repr__(self) -> str:
        return "Sealed(•••)" if self._token else "Sealed(empty)"

    __str__ = __repr__


def lacking() -> str:
    """Why no secret can be kept, and what to do; "" where one can."""
    return "" if settings.CLUSTERTAB_SECRET_KEYS else NO_KEYS


@sensitive_variables()
def seal(text: str) -> Sealed:
    """The text, encrypted with the first key; the empty text stays empty. Raises VaultError without keys."""
    return Sealed(_keys().encrypt(text.encode()).decode() if text else "")


@sensitive_variables()
def _keys() -> MultiFernet:
    from cryptography.fernet import Fernet, MultiFernet

    if not settings.CLUSTERTAB_SECRET_KEYS:
        raise VaultError(NO_KEYS)
    try:
        return MultiFernet([Fernet(key) for key in settings.CLUSTERTAB_SECRET_KEYS])
    except ValueError:
        raise VaultError(NOT_A_KEY) from None
