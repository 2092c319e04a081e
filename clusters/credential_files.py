"""Credentials that stay in files: the connection keeps where, and each pull reads what stands there by then.

Renewed tokens and authorities are taken up so, without anybody entering them. Only a configuration file names files:
a form could be used to send any file of the host to an address of one's own.
"""

from __future__ import annotations

import base64
from pathlib import Path
from stat import S_ISREG

from clusters.connectors.base import ConnectorError, Secret
from portal.excerpt import quoted

PREFIX = "file:"
LARGEST = 1 << 20  # bytes of a file that a key, a token or certificates stand in


class CredentialFileError(Exception):
    """A file cannot be read; the message goes on after "names"."""


def path_of(text: str) -> Path | None:
    """The file that is named, None for what is no name of one."""
    name = text.removeprefix(PREFIX)
    return Path(name) if name and name != text else None


def content(path: Path) -> bytes:
    """What stands in the file now. Raises CredentialFileError."""
    try:
        if not S_ISREG(path.stat().st_mode):  # a pipe would keep us waiting, a device never end
            raise CredentialFileError(f"{quoted(str(path))}, which is not a file.")
        with path.open("rb") as file:
            body = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is no path"
        raise CredentialFileError(f"{quoted(str(path))}, which cannot be read: {why}.") from None
    if len(body) > LARGEST:
        raise CredentialFileError(f"{quoted(str(path))}, which is too large for it.")
    return body


def present(secret: Secret, *, what: str) -> Secret:
    """The secret as its file has it now; one that is kept here as it is. Raises ConnectorError."""
    path = path_of(secret.reveal())
    if path is None:
        return secret
    try:
        return Secret(_read(path, what).decode().strip())
    except UnicodeDecodeError:
        raise ConnectorError("credential-no-text", retry=True, what=what, path=quoted(str(path))) from None


def present_key(secret: Secret, *, what: str) -> Secret:
    """`present` for a key of bytes, in base64."""
    path = path_of(secret.reveal())
    return secret if path is None else Secret(base64.b64encode(_read(path, what)).decode())


def present_certificates(text: str, *, what: str) -> str:
    """`present` for certificates in PEM."""
    pem = present(Secret(text), what=what).reveal()
    if path_of(text) is not None and "-----BEGIN CERTIFICATE-----" not in pem:
        raise ConnectorError(
            "credential-no-certificate", retry=True, what=what, path=quoted(str(path_of(text)))
        )
    return pem


def _read(path: Path, what: str) -> bytes:
    """Raises ConnectorError, also for an empty file: one that is being written is no wish to go without."""
    try:
        body = content(path)
    except CredentialFileError as error:
        raise ConnectorError("credential-unreadable", retry=True, what=what, reason=error) from None
    if not body.strip():
        raise ConnectorError("credential-empty", retry=True, what=what, path=quoted(str(path)))
    return body
