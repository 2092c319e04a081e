"""Who we are to slurmrestd: a stored token, or tokens minted from Slurm's own JWT key."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import jwt

from clusters.connectors.base import ConnectorError, Secret
from clusters.connectors.clocks import MINUTES, utc
from clusters.connectors.slurm.faults import LoginRefusedError

LIFE = 1800  # seconds that a minted token is good for
RENEW = 600  # seconds before its end at which a new one is minted: longer than any one answer may take
_PREFIX = "SLURM_JWT="  # as `scontrol token` prints it


class SlurmLogin:
    """The user and what proves it: `token` as `scontrol token` gives it, or `key`, the base64 of jwt_hs256.key.

    With both, tokens are minted from the key. The user needs AdminLevel=Operator to see everybody's jobs.
    """

    def __init__(self, user: str, token: Secret | None = None, key: Secret | None = None) -> None:
        self.user = user.strip()
        self._token = Secret(_bare(token)) if token else Secret("")
        self._key = key or Secret("")
        self._minted = Secret("")
        self._minted_until = 0

    def __repr__(self) -> str:
        return f"SlurmLogin({self.user!r})"

    @property
    def mints(self) -> bool:
        """Whether tokens are made from the key as they are needed."""
        return bool(self._key)

    def headers(self, *, now: int) -> dict[str, Secret]:
        """The two headers that every version takes. Raises `ConnectorError` if there is nothing to prove with."""
        if not self.user:
            raise ConnectorError("slurm-no-user", retry=False)
        return {"X-SLURM-USER-NAME": Secret(self.user), "X-SLURM-USER-TOKEN": self.token(now=now)}

    def token(self, *, now: int) -> Secret:
        """The stored token, or one minted from the key with at least ten minutes of life left at `now`."""
        if self._key:
            if now > self._minted_until - RENEW or now < self._minted_until - LIFE - RENEW:
                self._minted, self._minted_until = self._mint(now), now + LIFE
            return self._minted
        if self._token:
            return self._token
        raise ConnectorError("slurm-no-token", retry=False, user=self.user)

    def expired(self, *, now: int) -> LoginRefusedError | None:
        """The error of a stored token that is past its own `exp`. Its signature is Slurm's to check."""
        if self._key or not self._token:
            return None
        until = _claims(self._token).get("exp")
        if not isinstance(until, int) or until > now:
            return None
        return LoginRefusedError("slurm-token-expired", retry=False, end=utc(until, MINUTES), user=self.user)

    def claims(self, *, now: int) -> dict[str, Any]:
        """What the token that is sent says of itself, {} where it cannot be read. Raises as `token`."""
        return _claims(self.token(now=now))

    def other_user(self) -> str:
        """The user that a stored token is really for, where it is not ours; "" where it fits or cannot be told."""
        sun = _claims(self._token).get("sun") if self._token and not self._key else None
        return sun if isinstance(sun, str) and sun not in {self.user, "root", "slurm"} else ""

    def _mint(self, now: int) -> Secret:
        key = _key_bytes(self._key)
        if key is None:
            raise ConnectorError("slurm-key-unreadable", retry=False)
        return Secret(_signed({"sun": self.user, "iat": now, "exp": now + LIFE}, self._key))


def _signed(claims: dict[str, Any], key: Secret) -> str:
    return jwt.encode(claims, _key_bytes(key) or b"", algorithm="HS256")


def _key_bytes(key: Secret) -> bytes | None:
    try:
        return base64.b64decode("".join(key.reveal().split()), validate=True) or None
    except (binascii.Error, ValueError):
        return None


def _bare(token: Secret) -> str:
    return token.reveal().strip().removeprefix(_PREFIX).strip()


def _claims(token: Secret) -> dict[str, Any]:
    try:
        claims: dict[str, Any] = jwt.decode(token.reveal(), options={"verify_signature": False})
    except jwt.PyJWTError:
        return {}
    return claims
