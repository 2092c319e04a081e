"""What a look at a source finds, whichever its kind: sentences, with what mends each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found. `mend` is the command or the line of configuration that mends it, or ""."""

    level: Level
    subject: str
    sentence: str
    mend: str = ""
