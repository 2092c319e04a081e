"""What stands beside a configuration file, never in it: keys, tokens, certificates, by where they are."""

from __future__ import annotations

import base64
import json
import os
import re
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
    """Whether that is what is kept; what no key opens is not."""
    try:
        return Secret(sealed.reveal()) == secret
    except VaultError:
        return False


def certificates(table: Table, key: str) -> str | None:
    """In PEM, or the name of their file; "" takes them away, and None is not said or was refused."""
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
    """The text that `env:NAME` holds, or the name of a file that holds one; None is not said or was refused."""
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
def signing_key(table: Table) -> Secret | None:
    """jwt_hs256.key is bytes; in an environment variable they stand in base64."""
    content = _content(table, "jwt_key")
    if not content:
        return None if content is None else Secret("")
    if name := _file_name(table, "jwt_key"):
        return Secret(name)
    try:
        base64.b64decode(content.strip(), validate=True)
    except ValueError:
        table.wrong(
            "jwt_key", "names a variable whose value is not base64; make it with `base64 -w0 jwt_hs256.key`."
        )
        return None
    return Secret(content.decode().strip())


@sensitive_variables()
def headers(table: Table) -> Secret | None:
    """By name, as one object of JSON; empty takes them away, and None is not said or was refused."""
    if not table.given("headers"):
        return None
    within = table.table("headers")
    told: dict[str, str] = {}
    for name in list(within.data):
        value = secret(within, name, one_line=True)
        if not HEADER.fullmatch(name):
            within.wrong(name, "is no name of a header.")
        elif value is not None:
            told[name] = value.reveal()
    return Secret(json.dumps(told, sort_keys=True) if told else "")


def options(table: Table) -> dict[str, Any] | None:
    """As the connector of the kind reads them; None is not said or was refused."""
    if not table.given("options"):
        return None
    told = table.data["options"]
    try:
        options_from(told)
    except ConnectorError as error:
        table.errors.append(f"{table.name}: {error}")
        return None
    return dict(told)


def shares(table: Table) -> dict[str, Any] | None:
    """A cluster's own rows of MIG slices; None is not said or was refused."""
    if not table.given("shares"):
        return None
    try:
        own_shares(table.data["shares"], "shares")
    except ConnectorError as error:
        table.errors.append(f"{table.name}: {error}")
        return None
    return {model: dict(profiles) for model, profiles in table.data["shares"].items()}


@sensitive_variables()
def aws(table: Table) -> Secret | None:
    """Region and keys rest together, since they are of use together only."""
    if not table.given("aws"):
        return None
    within = table.table("aws")
    if not within.data:
        return Secret("")
    told = {"region": Secret(within.text("region", required=True) or "")}
    for key in ("access_key", "secret_key", "session_token"):
        value = secret(within, key)
        if value is not None:
            told[key] = value
        elif key != "session_token" and key not in within.data:
            within.wrong(key, f"is missing; {WRITE}.")
    within.done()
    return Secret(json.dumps({key: value.reveal() for key, value in told.items() if value}, sort_keys=True))


@sensitive_variables()
def _content(table: Table, key: str) -> bytes | None:
    """What the named file or variable holds; b"" for "", which takes away what is kept."""
    if not table.given(key):
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
    """What is kept of a file: its whole name, since workers begin elsewhere; "" for what is no file."""
    path = credential_files.path_of(str(table.data[key]))
    return "" if path is None else f"{credential_files.PREFIX}{path.absolute()}"
