"""What stands beside a configuration file, never in it: keys, tokens, certificates, by where they are."""

from __future__ import annotations

import base64
import json
import os
import re
from pathlib import Path
from typing import Any

from django.views.decorators.debug import sensitive_variables

from clusters.connectors.base import ConnectorError, Secret
from clusters.connectors.mig import own_shares
from clusters.connectors.prometheus.told import options_from
from clusters.models.guarding import holds_private_key
from portal.ops.config.reading import Table
from portal.vault import Sealed, VaultError

LARGEST = 1 << 20  # bytes of a file that a key, a token or certificates stand in
HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
WRITE = 'write "file:PATH" or "env:NAME"'


def same(sealed: Sealed, secret: Secret) -> bool:
    """Whether that is what is kept; what no key opens is not."""
    try:
        return Secret(sealed.reveal()) == secret
    except VaultError:
        return False


def certificates(table: Table, key: str) -> str | None:
    """In PEM; "" takes them away, and None is not said or was refused."""
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
    return text + "\n"


@sensitive_variables()
def secret(table: Table, key: str) -> Secret | None:
    """The text that `file:PATH` or `env:NAME` holds; None is not said or was refused."""
    content = _content(table, key)
    if content is None:
        return None
    try:
        return Secret(content.decode().strip())
    except UnicodeDecodeError:
        table.wrong(key, "holds something that is no text.")
        return None


@sensitive_variables()
def signing_key(table: Table) -> Secret | None:
    """jwt_hs256.key is bytes; in an environment variable they stand in base64."""
    content = _content(table, "jwt_key")
    if not content:
        return None if content is None else Secret("")
    if str(table.data["jwt_key"]).startswith("file:"):
        return Secret(base64.b64encode(content).decode())
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
        value = secret(within, name)
        if not HEADER.fullmatch(name):
            within.wrong(name, "is no name of a header.")
        elif value is not None and not value.reveal().isprintable():
            within.wrong(name, "holds line breaks or other control characters.")
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
        table.wrong(key, f"names the environment variable {name!r}, which is not set.")
    elif kind == "file" and name:
        return _file(table, key, Path(name))
    else:
        table.wrong(key, f"stands in the file itself, where whoever reads the file reads it; {WRITE}.")
    return None


@sensitive_variables()
def _file(table: Table, key: str, path: Path) -> bytes | None:
    try:
        if path.stat().st_size > LARGEST:
            table.wrong(key, f"names {str(path)!r}, which is too large for it.")
            return None
        return path.read_bytes()
    except OSError as error:
        table.wrong(key, f"names {str(path)!r}, which cannot be read: {error.strerror}.")
        return None
