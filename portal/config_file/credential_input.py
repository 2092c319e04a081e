"""Credentials of a configuration file, which names where they are: keys, tokens and certificates are never in it."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.views.decorators.debug import sensitive_variables

from clusters import credential_files
from clusters.connectors.base import ConnectorError, Secret
from clusters.connectors.mig import own_shares
from clusters.connectors.prometheus.option_parsing import options_from
from clusters.credential_files import CredentialFileError
from clusters.models.secrets_guard import holds_private_key
from portal.config_file.toml_table import Table
from portal.core.vault import Sealed, VaultError
from portal.excerpt import quoted

HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
WRITE = 'write "file:PATH" or "env:NAME"'


def same(sealed: Sealed, secret: Secret) -> bool:
    """Whether that is what is stored; what no key opens is not."""
    try:
        return Secret(sealed.reveal()) == secret
    except VaultError:
        return False


def certificates(table: Table, key: str) -> str | None:
    """In PEM, or the name of their file; "" takes them away, and None is not there or was refused."""
    content = _content(table, key)
    if not content:
        return None if content is None else ""
    text = content.decode("ascii", "replace").strip()
    if "-----BEGIN CERTIFICATE-----" not in text:
        table.wrong(key, "holds no certificate in PEM.")
        return None
    if problem := holds_private_key(text):
        table.wrong(key, problem)
        return None
    return _file_name(table, key) or text + "\n"


@sensitive_variables()
def secret(table: Table, key: str, *, one_line: bool = False) -> Secret | None:
    """The text that `env:NAME` holds, or the name of a file that holds one; None is not there or was refused."""
    content = _content(table, key)
    if content is None:
        return None
    try:
        text = content.decode().strip()
    except UnicodeDecodeError:
        table.wrong(key, "holds something that is no text.")
        return None
    if one_line and not text.isprintable():
        table.wrong(key, "holds line breaks or other control characters.")
        return None
    return Secret(_file_name(table, key) or text)


@sensitive_variables()
def signing_key(table: Table, key: str) -> Secret | None:
    """jwt_hs256.key is bytes; in an environment variable they stand in base64."""
    content = _content(table, key)
    if not content:
        return None if content is None else Secret("")
    if name := _file_name(table, key):
        return Secret(name)
    try:
        base64.b64decode(content.strip(), validate=True)
    except ValueError:
        table.wrong(
            key, "names a variable whose value is not base64; make it with `base64 -w0 jwt_hs256.key`."
        )
        return None
    return Secret(content.decode().strip())


@sensitive_variables()
def headers(table: Table, key: str) -> Secret | None:
    """By name, as one object of JSON; empty takes them away, and None is not there or was refused."""
    if not table.has(key):
        return None
    within = table.table(key)
    values: dict[str, str] = {}
    for name in list(within.data):
        value = secret(within, name, one_line=True)
        if not HEADER.fullmatch(name):
            within.wrong(name, "is no name of a header.")
        elif value is not None:
            values[name] = value.reveal()
    return Secret(json.dumps(values, sort_keys=True) if values else "")


def options(table: Table, key: str) -> dict[str, Any] | None:
    """As the connector of the kind reads them; None is not there or was refused."""
    return table.data[key] if _read_by(table, key, options_from) else None


def shares(table: Table, key: str) -> dict[str, Any] | None:
    """A cluster's own rows of MIG slices; None is not there or was refused."""
    return table.data[key] if _read_by(table, key, lambda data: own_shares(data, key)) else None


def _read_by(table: Table, key: str, read: Callable[[Any], object]) -> bool:
    """Whether the connector can read it; not where it is not there."""
    if not table.has(key):
        return False
    try:
        read(table.data[key])
    except ConnectorError as error:
        table.errors.append(f"{table.name}: {error}")
        return False
    return True


@sensitive_variables()
def aws(table: Table, key: str) -> Secret | None:
    """Region and keys rest together, since they are of use together only."""
    if not table.has(key):
        return None
    within = table.table(key)
    if not within.data:
        return Secret("")
    region = within.text("region", filled=True)
    if region is None and "region" not in within.data:
        within.wrong("region", "is missing.")
    values = {"region": Secret(region or "")}
    for name in ("access_key", "secret_key", "session_token"):
        value = secret(within, name)
        if value is not None:
            values[name] = value
        elif name != "session_token" and name not in within.data:
            within.wrong(name, f"is missing; {WRITE}.")
    within.refuse_other_keys()
    return Secret(
        json.dumps({name: value.reveal() for name, value in values.items() if value}, sort_keys=True)
    )


@sensitive_variables()
def _content(table: Table, key: str) -> bytes | None:
    """What the named file or variable holds; b"" for "", which takes away what is stored."""
    if not table.has(key):
        return None
    value = table.data[key]
    if value == "":
        return b""
    kind, _, name = value.partition(":") if isinstance(value, str) else ("", "", "")
    if kind == "env" and name:
        if name in os.environ:
            return os.environb[name.encode()]
        table.wrong(key, f"names the environment variable {quoted(name)}, which is not set.")
    elif kind == "file" and name:
        try:
            return credential_files.content(Path(name))
        except CredentialFileError as error:
            table.wrong(key, f"names {error}")
    else:
        table.wrong(key, f"stands in the file itself, where whoever reads the file reads it; {WRITE}.")
    return None


def _file_name(table: Table, key: str) -> str:
    """What is stored of a file: its whole name, since workers begin elsewhere; "" for what is no file."""
    path = credential_files.path_of(str(table.data[key]))
    return "" if path is None else f"{credential_files.PREFIX}{path.absolute()}"
