"""The state on disk: whole or as it was before, whatever is killed in between."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import msgspec

from portal.dev.stripe_sandbox.state import Data

NAME = "stripe-sandbox.json"


def write(home: Path, data: Data) -> None:
    """Atomically, and on the disk when this returns; readable by its owner only."""
    target = home / NAME
    temp_path = target.with_suffix(".new")
    descriptor = os.open(temp_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(data.as_json()))
        file.flush()
        os.fsync(file.fileno())
    temp_path.replace(target)


def read(home: Path) -> Data | None:
    """What was written last, None if nothing was."""
    target = home / NAME
    if not target.exists():
        return None
    try:
        payload = msgspec.json.decode(target.read_bytes())
        return Data(**{field.name: payload[field.name] for field in dataclasses.fields(Data)})
    except (msgspec.DecodeError, KeyError, TypeError):
        raise SystemExit(f"{target} is not a state of the sandbox: move it away to start anew.") from None
