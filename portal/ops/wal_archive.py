"""What a directory of archived WAL holds: PostgreSQL itself ends a recovery at the first segment that is missing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

SEGMENT = re.compile(r"[0-9A-F]{24}")  # timeline, log and number within it, of eight hexadecimal digits each
START = re.compile(r"START WAL LOCATION: .* \(file ([0-9A-F]{24})\)")
LOG_BYTES = 1 << 32  # of all segments whose names begin with the same 16 digits


@dataclass(frozen=True, slots=True)
class WalArchive:
    """`flaw`: what ends a recovery before the newest segment, a sentence or ""; `newest_at`: when that was archived."""

    flaw: str
    newest_at: datetime | None


def examine(archive: Path, *, base: Path) -> WalArchive:
    """Look for the segments from the base backup's first on. Those that came with the backup itself count, too."""
    files = {path.name: path for path in _segments(base / "pg_wal")} | {
        path.name: path for path in _segments(archive)
    }
    match = START.search((base / "backup_label").read_text())
    first = match[1] if match else ""
    names = sorted((name for name in files if name[8:] >= first[8:]), key=lambda name: name[8:])
    if not names:
        return WalArchive(f"The archive {archive} has no WAL segment from {first} on.", None)
    newest_at = datetime.fromtimestamp(max(files[name].stat().st_mtime for name in names), UTC)
    return WalArchive(_flaw(first, names, files), newest_at)


def _flaw(first: str, names: list[str], files: dict[str, Path]) -> str:
    sizes = {name: files[name].stat().st_size for name in names}
    whole = max(sizes.values())
    for name in names:
        if sizes[name] < whole:
            return f"WAL segment {name} is cut short: it has {sizes[name]:,} of {whole:,} bytes."
    numbers = {_number(name, whole) for name in names}
    expected = range(_number(first, whole), max(numbers) + 1)
    missing = next((number for number in expected if number not in numbers), None)
    if missing is None:
        return ""
    later = sum(number > missing for number in numbers)
    name = _name(missing, whole, first[:8])
    return f"WAL segment {name} is missing, and without it {later} later ones are of no use."


def _segments(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    return [path for path in directory.iterdir() if SEGMENT.fullmatch(path.name)]


def _number(name: str, size: int) -> int:
    """Its place in all WAL that was ever written, whatever its timeline."""
    return int(name[8:16], 16) * (LOG_BYTES // size) + int(name[16:], 16)


def _name(number: int, size: int, timeline: str) -> str:
    log, place = divmod(number, LOG_BYTES // size)
    return f"{timeline}{log:08X}{place:08X}"
