"""The connection of a cluster in a configuration file. What nobody may read stands beside the file, never in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from clusters.connectors.base import Secret
from clusters.models import Cluster, ClusterError, ClusterKind, Connection, Telemetry
from clusters.models.connection import FITTING, SECRETS, WHERE
from clusters.models.endpoint import known_address
from clusters.models.secrets_guard import entered_for_elsewhere
from clusters.models.telemetry import TELEMETRY_SECRETS
from portal.config_file import credential_input
from portal.config_file.toml_table import Table
from portal.core.vault import VaultError, seal
from portal.excerpt import quoted
from portal.ops.cli import midnight


@dataclass(frozen=True, slots=True)
class ConnectionEntry:
    """`fields` are the columns as they stand; `secrets` those that will rest encrypted."""

    fields: dict[str, Any]
    secrets: dict[str, Secret]


def read(table: Table) -> ConnectionEntry:
    """The entry; mistakes go to the table's errors, without a word of any secret."""
    said = {
        "slurm_cluster": table.text("slurm_cluster", longest=100),
        "first_usage_from": table.moment("first_usage_from"),
        "every": table.whole("every", lowest=30, highest=86_400),
        "look_back": table.whole("look_back", lowest=1, highest=24 * 62),
        "coverage_needed": table.whole("coverage_needed", lowest=0, highest=100),
    }
    return _entry(table, said, {"jwt_key": credential_input.signing_key(table)})


def read_telemetry(table: Table) -> ConnectionEntry:
    """`read` for the Prometheus that tells how busy the devices of a Slurm cluster are."""
    return _entry(table, {}, {})


def _entry(table: Table, said: dict[str, Any], kept: dict[str, Secret | None]) -> ConnectionEntry:
    """With what every address has."""
    said |= {
        "base_url": table.text("url", longest=500, check=known_address),
        "unix_socket": table.text("unix_socket"),
        "ca": credential_input.certificates(table, "ca"),
        "client_certificate": credential_input.certificates(table, "client_certificate"),
        "user": table.text("user", longest=100),
        "enabled": table.flag("enabled"),
        "options": credential_input.options(table),
    }
    kept |= {
        "client_key": credential_input.secret(table, "client_key"),
        "token": credential_input.secret(table, "token"),
        "headers": credential_input.headers(table),
        "password": credential_input.secret(table, "password"),
        "aws": credential_input.aws(table),
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
    wanted = dict(entry.fields)
    first = wanted.get("first_usage_from")
    if first is not None and not isinstance(first, datetime):
        wanted["first_usage_from"] = midnight(first, ZoneInfo(cluster.timezone))
    what, listener = "connection", WHERE[ClusterKind(cluster.kind)]
    if _change(row, wanted, entry.secrets, secrets=SECRETS, what=what, listener=listener):
        if misfit := row.misfit(cluster.kind):
            raise ClusterError(f"its connection cannot be meant so. {misfit}")
        row.next_pull_at = None  # what was wrong with it may be right now
        row.save()


def write_telemetry(*, cluster: Cluster, entry: ConnectionEntry) -> None:
    """Have the telemetry be as the entry says; applied again, nothing changes. Raises ClusterError."""
    if cluster.kind != ClusterKind.SLURM:
        raise ClusterError(
            f"it has telemetry, which is for clusters of the kind 'slurm'; this one is {quoted(cluster.kind)}."
        )
    row = Telemetry.objects.filter(cluster=cluster).first() or Telemetry(cluster=cluster)
    what, listener = "telemetry", "the Prometheus"
    if _change(row, entry.fields, entry.secrets, secrets=TELEMETRY_SECRETS, what=what, listener=listener):
        if misfit := row.prometheus_misfit():
            raise ClusterError(f"its telemetry cannot be meant so. {misfit}")
        row.next_at = None
        row.save()


def _change(
    row: Connection | Telemetry,
    wanted: Mapping[str, Any],
    entered: Mapping[str, Secret],
    *,
    secrets: Sequence[str],
    what: str,
    listener: str,
) -> bool:
    """Set what differs; whether anything does. Raises ClusterError."""
    if not any(wanted.get(name, getattr(row, name)) for name in ("base_url", "unix_socket")):
        raise ClusterError(f"its {what} has neither url nor unix_socket; write where {listener} listens.")
    if again := entered_for_elsewhere(row, wanted, given=entered, secrets=secrets):
        raise ClusterError(
            f"its {what} leads to another address, and what is kept secret was given for {row.address}: "
            f'give {", ".join(again)} again with it, or take it away with "".'
        )
    differing = {name: value for name, value in wanted.items() if getattr(row, name) != value}
    try:
        changed = {
            name: seal(secret.reveal())
            for name, secret in entered.items()
            if not credential_input.same(getattr(row, name), secret)
        }
    except VaultError as error:
        raise ClusterError(str(error)) from None
    for name, value in (differing | changed).items():
        setattr(row, name, value)
    return bool(differing or changed)


def _refuse_what_does_not_fit(cluster: Cluster, entry: ConnectionEntry) -> None:
    given = {name for name, value in (entry.fields | entry.secrets).items() if value}
    for kind, columns in FITTING.items():
        for name in columns:
            if name in given and cluster.kind != kind:
                raise ClusterError(
                    f"its connection has {name}, which is for clusters of the kind {quoted(kind.value)}; "
                    f"this one is {quoted(cluster.kind)}."
                )
