"""The connection of a cluster in a configuration file. What nobody may read stands beside the file, never in it."""

from __future__ import annotations

import base64
import json
import os
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from django.views.decorators.debug import sensitive_variables

from clusters.connectors.base import ConnectorError, Secret
from clusters.connectors.prometheus.told import options_from
from clusters.models import Cluster, ClusterError, ClusterKind, Connection
from clusters.models.connection import FITTING, SECRETS, WHERE, known_address
from clusters.models.guarding import entered_for_elsewhere, holds_private_key
from portal.ops.cli import midnight
from portal.ops.config.reading import Table
from portal.vault import Sealed, VaultError, seal

LARGEST = 1 << 20  # bytes of a file that a key, a token or certificates stand in
HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
WRITE = 'write "file:PATH" or "env:NAME"'


@dataclass(frozen=True, slots=True)
class ConnectionEntry:
    """`fields` are the columns as they stand; `secrets` those that will rest encrypted."""

    fields: dict[str, Any]
    secrets: dict[str, Secret]


def read(table: Table) -> ConnectionEntry:
    """The entry; mistakes go to the table's errors, without a word of any secret."""
    said = {
        "base_url": table.text("url", longest=500, check=known_address),
        "unix_socket": table.text("unix_socket"),
        "ca": _certificates(table, "ca"),
        "client_certificate": _certificates(table, "client_certificate"),
        "user": table.text("user", longest=100),
        "slurm_cluster": table.text("slurm_cluster", longest=100),
        "first_usage_from": table.moment("first_usage_from"),
        "every": table.whole("every", lowest=30, highest=86_400),
        "look_back": table.whole("look_back", lowest=1, highest=24 * 62),
        "enabled": table.flag("enabled"),
        "options": _options(table),
    }
    kept = {
        "client_key": _secret(table, "client_key"),
        "token": _secret(table, "token"),
        "jwt_key": _signing_key(table),
        "headers": _headers(table),
        "password": _secret(table, "password"),
        "aws": _aws(table),
    }
    table.done()
    return ConnectionEntry(
        {name: value for name, value in said.items() if value is not None},
        {name: value for name, value in kept.items() if value is not None},
    )


def write(*, cluster: Cluster, entry: ConnectionEntry) -> None:
    """Have the connection be as the entry says; applied again, nothing changes. Raises ClusterError."""
    if cluster.kind not in WHERE:
        kinds = " or ".join(repr(kind.value) for kind in WHERE)
        raise ClusterError(f"it has a connection, so its kind has to be {kinds}.")
    _refuse_what_does_not_fit(cluster, entry)
    kept = Connection.objects.filter(cluster=cluster).first()
    row = kept or Connection(cluster=cluster)
    said = {name: entry.fields.get(name, getattr(row, name)) for name in ("base_url", "unix_socket")}
    if not any(said.values()):
        raise ClusterError(
            "its connection has neither url nor unix_socket; "
            f"write where {WHERE[ClusterKind(cluster.kind)]} listens."
        )
    if again := entered_for_elsewhere(row, entry.fields, given=entry.secrets, secrets=SECRETS):
        raise ClusterError(
            f"its connection leads to another address, and what is kept secret was given for {row.address}: "
            f'give {", ".join(again)} again with it, or take it away with "".'
        )
    wanted = dict(entry.fields)
    first = wanted.get("first_usage_from")
    if first is not None and not isinstance(first, datetime):
        wanted["first_usage_from"] = midnight(first, ZoneInfo(cluster.timezone))
    differing = {name: value for name, value in wanted.items() if getattr(row, name) != value}
    try:
        changed = {
            name: seal(secret.reveal())
            for name, secret in entry.secrets.items()
            if not _is(getattr(row, name), secret)
        }
    except VaultError as error:
        raise ClusterError(str(error)) from None
    for name, value in (differing | changed).items():
        setattr(row, name, value)
    if misfit := row.misfit(cluster.kind):
        raise ClusterError(f"its connection cannot be meant so. {misfit}")
    if differing or changed:
        row.next_pull_at = None  # what was wrong with it may be right now
        row.save()


def _refuse_what_does_not_fit(cluster: Cluster, entry: ConnectionEntry) -> None:
    given = {name for name, value in (entry.fields | entry.secrets).items() if value}
    for kind, columns in FITTING.items():
        for name in columns:
            if name in given and cluster.kind != kind:
                raise ClusterError(
                    f"its connection has {name}, which is for clusters of the kind {kind.value!r}; "
                    f"this one is {cluster.kind!r}."
                )


def _is(sealed: Sealed, secret: Secret) -> bool:
    """Whether that is what is kept; what no key opens is not."""
    try:
        return Secret(sealed.reveal()) == secret
    except VaultError:
        return False


def _certificates(table: Table, key: str) -> str | None:
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
def _secret(table: Table, key: str) -> Secret | None:
    content = _content(table, key)
    if content is None:
        return None
    try:
        return Secret(content.decode().strip())
    except UnicodeDecodeError:
        table.wrong(key, "holds something that is no text.")
        return None


@sensitive_variables()
def _signing_key(table: Table) -> Secret | None:
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
def _headers(table: Table) -> Secret | None:
    if not table.given("headers"):
        return None
    within = table.table("headers")
    told: dict[str, str] = {}
    for name in list(within.data):
        value = _secret(within, name)
        if not HEADER.fullmatch(name):
            within.wrong(name, "is no name of a header.")
        elif value is not None and not value.reveal().isprintable():
            within.wrong(name, "holds line breaks or other control characters.")
        elif value is not None:
            told[name] = value.reveal()
    return Secret(json.dumps(told, sort_keys=True) if told else "")


def _options(table: Table) -> dict[str, Any] | None:
    if not table.given("options"):
        return None
    told = table.data["options"]
    try:
        options_from(told)
    except ConnectorError as error:
        table.errors.append(f"{table.name}: {error}")
        return None
    return dict(told)


@sensitive_variables()
def _aws(table: Table) -> Secret | None:
    """Region and keys rest together, since they are of use together only."""
    if not table.given("aws"):
        return None
    within = table.table("aws")
    if not within.data:
        return Secret("")
    told = {"region": Secret(within.text("region", required=True) or "")}
    for key in ("access_key", "secret_key", "session_token"):
        value = _secret(within, key)
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
