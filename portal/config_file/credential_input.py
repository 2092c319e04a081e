"""Credentials of a configuration file, which names where they are: keys, tokens and certificates are never in it.

Each is read from the value of its key; "" takes away what is stored.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from django.views.decorators.debug import sensitive_variables

from clusters import credential_files
from clusters.connectors.base import ConnectorError, Secret
from clusters.connectors.mig import own_shares
from clusters.credential_files import CredentialFileError
from clusters.models.secrets_guard import holds_private_key
from portal.config_file.entries import Entry, Rule, read
from portal.config_file.toml_table import Table
from portal.config_file.toml_values import WrongValue
from portal.core.vault import Sealed, VaultError
from portal.excerpt import quoted
from portal.sentences import sentence

HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
WRITE = 'write "file:PATH" or "env:NAME"'


def same(sealed: Sealed, secret: Secret) -> bool:
    """Whether that is what is stored; what no key opens is not."""
    try:
        return Secret(sealed.reveal()) == secret
    except VaultError:
        return False


def certificates(value: Any) -> str:
    """In PEM, or the name of their file."""
    text = _content(value).decode("ascii", "replace").strip()
    if not text:
        return ""
    if "-----BEGIN CERTIFICATE-----" not in text:
        raise WrongValue("holds no certificate in PEM.")
    if problem := holds_private_key(text):
        raise WrongValue(problem)
    return _file_name(value) or f"{text}\n"


@sensitive_variables()
def secret(value: Any) -> Secret:
    """The text that `env:NAME` holds, or the name of a file that holds one."""
    try:
        text = _content(value).decode().strip()
    except UnicodeDecodeError:
        raise WrongValue("holds something that is no text.") from None
    return Secret(_file_name(value) or text)


@sensitive_variables()
def text(value: Any) -> Secret:
    """The text that `env:NAME` or `file:PATH` holds now."""
    try:
        return Secret(_content(value).decode().strip())
    except UnicodeDecodeError:
        raise WrongValue("holds something that is no text.") from None


@sensitive_variables()
def signing_key(value: Any) -> Secret:
    """jwt_hs256.key is bytes; in an environment variable they stand in base64."""
    content = _content(value)
    if name := _file_name(value):
        return Secret(name if content else "")
    try:
        base64.b64decode(content.strip(), validate=True)
    except ValueError:
        raise WrongValue(
            "names a variable whose value is not base64; make it with `base64 -w0 jwt_hs256.key`."
        ) from None
    return Secret(content.decode().strip())


@sensitive_variables()
def _header(value: Any) -> Secret:
    line = secret(value)
    if not _content(value).decode().strip().isprintable():
        raise WrongValue("holds line breaks or other control characters.")
    return line


@sensitive_variables()
def headers(table: Table, key: str) -> Secret | None:
    """By name, as one object of JSON; empty takes them away."""
    if not table.has(key):
        return None
    within = table.table(key)
    values: dict[str, str] = {}
    for name in list(within.data):
        value = within.value(name, _header)
        if not HEADER.fullmatch(name):
            within.wrong(name, "is no name of a header.")
        elif value is not None:
            values[name] = value.reveal()
    return Secret(json.dumps(values, sort_keys=True) if values else "")


def options(table: Table, key: str) -> dict[str, Any] | None:
    """As a connector reads them; whether it is that of the cluster's kind is known once they are written."""
    from clusters.connectors.gpustack import options as gpustack
    from clusters.connectors.prometheus.option_parsing import options_from  # loads the client

    is_gpustack = gpustack.are_meters(table.data.get(key))
    reader = gpustack.options_from if is_gpustack else options_from
    return table.data[key] if _read_by(table, key, reader) else None


def shares(table: Table, key: str) -> dict[str, Any] | None:
    """A cluster's own rows of MIG slices and shards."""
    return table.data[key] if _read_by(table, key, lambda data: own_shares(data, key)) else None


def _read_by(table: Table, key: str, reader: Callable[[Any], object]) -> bool:
    """Whether the connector can read it, and it is there; its sentence names the key."""
    if not table.has(key):
        return False
    try:
        reader(table.data[key])
    except ConnectorError as error:
        table.errors.append(f"{table.name}: {sentence(error)}")
        return False
    return True


SecretText = Annotated[Secret, Rule(value=secret, missing=f"; {WRITE}.")]


class AwsEntry(Entry, frozen=True, kw_only=True):
    """Region and keys are of use together only, so they rest together. Without keys: the identity of the pod."""

    region: str
    access_key: SecretText | None = None
    secret_key: SecretText | None = None
    session_token: SecretText | None = None


@sensitive_variables()
def aws(table: Table, key: str) -> Secret | None:
    """As one object of JSON."""
    if not table.has(key):
        return None
    within = table.table(key)
    if not within.data:
        return Secret("")
    entry = read(within, AwsEntry)
    if entry is None:
        return None
    if (entry.access_key is None) != (entry.secret_key is None):
        within.wrong("access_key", "goes with secret_key; without both, the identity of the pod is used.")
        return None
    if entry.access_key is None:
        from clusters.connectors.prometheus.login import AwsIdentity  # loads the client

        try:
            AwsIdentity(entry.region)
        except ConnectorError as error:
            within.wrong("region", f"cannot be so: {error}")
            return None
    values = {"region": entry.region}
    for name, value in entry.columns("region").items():
        if value:
            values[name] = value.reveal()
    return Secret(json.dumps(values, sort_keys=True))


@sensitive_variables()
def _content(value: Any) -> bytes:
    """What the named file or variable holds; b"" for ""."""
    if value == "":
        return b""
    kind, _, name = value.partition(":") if isinstance(value, str) else ("", "", "")
    if kind == "env" and name:
        if name in os.environ:
            return os.environb[name.encode()]
        raise WrongValue(f"names the environment variable {quoted(name)}, which is not set.")
    if kind == "file" and name:
        try:
            return credential_files.content(Path(name))
        except CredentialFileError as error:
            raise WrongValue(f"names {error}") from error
    raise WrongValue(f"stands in the file itself, where whoever reads the file reads it; {WRITE}.")


def _file_name(value: Any) -> str:
    """What is stored of a file: its whole name, since workers begin elsewhere; "" for what is no file."""
    path = credential_files.path_of(str(value))
    return "" if path is None else f"{credential_files.PREFIX}{path.absolute()}"
