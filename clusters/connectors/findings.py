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


class Findings:
    """A look at a source, which keeps what it finds in the order in which it was found."""

    findings: list[Finding]

    def ok(self, subject: str, sentence: str) -> None:
        self.findings.append(Finding(Level.OK, subject, sentence))

    def warn(self, subject: str, sentence: str, mend: str = "") -> None:
        self.findings.append(Finding(Level.WARN, subject, sentence, mend))

    def fail(self, subject: str, sentence: str, mend: str = "") -> None:
        self.findings.append(Finding(Level.FAIL, subject, sentence, mend))
