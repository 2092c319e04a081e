"""Writing the files of a month: each read back and compared with PostgreSQL's rows, and with the ledger."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import groupby
from pathlib import Path
from typing import Any

from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper

from billing.models import MonthProof, SealedFile, SealedMonth
from billing.proof import records
from billing.proof.sums import seconds_text
from billing.sealed_months import folder, parquet, readiness
from billing.sealed_months.errors import SealError
from billing.sealed_months.rows_sql import (
    ALLOCATED_SUMS,
    KINDS,
    NAME_COLUMNS,
    NAMES,
    NUMBER_USERS,
    RATED,
    RATED_SUMS,
    RECORDS,
    Kind,
)

Sums = list[list[str]]


@dataclass(slots=True)
class MonthWriter:
    """Writes one month below `files`; its cursor sees one state of the database all the while."""

    row: SealedMonth
    within: tuple[int, int]  # numbers (after, last] of the month's records
    cursor: CursorWrapper
    program: parquet.Program
    files: Path
    names: list[str] = field(default_factory=list)

    def write(self) -> Iterator[SealedFile]:
        """Write every file. Raises SealError where one does not hold what the ledger has."""
        self.names = unknown_names(self.cursor, self._values())
        if self.names:
            yield self._file(NAMES, None, _name_rows(self.names), NAME_COLUMNS)
        # Before rows are copied: the connection answers nothing else meanwhile.
        ledger, proved = self._ledger(), records.of_proof(MonthProof.objects.get(month=self.row.month))
        for kind in KINDS:
            for tenant, rows in copied_rows(self.cursor, kind, self._values()):
                file = self._file(kind.name, tenant, rows, kind.filed)
                if kind is RECORDS:
                    self._compare_records(file, proved)
                elif kind is RATED:
                    file.sums = self._rated(file, ledger.pop(tenant or 0, set()))
                yield file
        for tenant in ledger:
            raise self._differs(SealedFile(month=self.row, tenant_id=tenant, kind="rated"))

    def _values(self) -> dict[str, Any]:
        return month_values(self.row, self.within, self.names)

    def _file(
        self, kind: str, tenant: int | None, rows: Iterable[bytes], columns: dict[str, str]
    ) -> SealedFile:
        digest, count = hashlib.sha256(), 0
        with self.program.rows.open("wb") as stream:
            for row in rows:
                stream.write(row)
                digest.update(row)
                count += 1
        file = SealedFile(month=self.row, tenant_id=tenant, kind=kind, rows=count, sums=[])
        path = self._path(file)
        path.parent.mkdir(exist_ok=True)
        file.rows_sha256 = self.program.write(path, columns)
        if file.rows_sha256 != digest.hexdigest():
            raise self._differs(file)
        file.bytes = path.stat().st_size
        file.sha256 = folder.sha256(path)
        return file

    def _path(self, file: SealedFile) -> Path:
        return self.files / Path(file.path).relative_to(f"{self.row}")

    def _ledger(self) -> dict[int, set[tuple[str | None, ...]]]:
        """By tenant the sums of its rated usage as they are kept with the proofs of months."""
        self.cursor.execute(readiness.sql.LEDGER, {"month": self.row.month})
        sums: dict[int, set[tuple[str | None, ...]]] = defaultdict(set)
        for tenant, *values in self.cursor.fetchall():
            sums[tenant].add(tuple(None if value is None else str(value) for value in values))
        return sums

    def _rated(self, file: SealedFile, ledger: set[tuple[str | None, ...]]) -> Sums:
        """By resource and verdict, once the sums of the file are the ledger's, digit for digit."""
        rows = self.program.sums(self._path(file), RATED_SUMS)
        if {tuple(row) for row in rows} != ledger:
            raise self._differs(file)
        sums: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
        for *_, resource, verdict, den, units, _count in rows:
            sums[str(resource), str(verdict)] += Fraction(f"{units}/{den}")
        return [[*key, seconds_text(value)] for key, value in sorted(sums.items())]

    def _compare_records(self, file: SealedFile, proved: records.Held) -> None:
        """What they allocated, by cluster and resource, is what the month's proof has."""
        sums: dict[tuple[int, str], Fraction] = defaultdict(Fraction)
        for cluster, resource, den, units in self.program.sums(self._path(file), ALLOCATED_SUMS):
            sums[int(cluster or 0), str(resource)] += Fraction(f"{units}/{den}")
        for (_, number, name, part), value in proved.items():
            if part == "allocated":
                sums[number, name] -= value
        if any(sums.values()):
            raise self._differs(file)

    def _differs(self, file: SealedFile) -> SealError:
        return SealError("differs", place=file.path, month=f"{self.row}")


def month_values(row: SealedMonth, within: tuple[int, int], names: list[str]) -> dict[str, Any]:
    """The parameters of the statements that copy a month's rows."""
    return {"month": row.month, "after": within[0], "last": within[1], "names": names}


@transaction.atomic
def number_users(row: SealedMonth, within: tuple[int, int]) -> None:
    """Give each user of tenants' usage of the month a number; whoever has one keeps it.

    Not while files are written: who signs a document or erases a name waits for numbers that are not committed.
    """
    values = month_values(row, within, [])
    with connection.cursor() as cursor:
        cursor.execute(NUMBER_USERS, values)
        for kind in KINDS:
            if not kind.of_tenant:
                cursor.execute(kind.number_users(), values)


def unknown_names(cursor: CursorWrapper, values: dict[str, Any]) -> list[str]:
    """The users of the month's usage that no tenant has a number for, in the order of the file of names."""
    names: set[str] = set()
    for kind in KINDS:
        if not kind.of_tenant:
            cursor.execute(kind.unknown_names(), values)
            names.update(name for (name,) in cursor.fetchall())
    return sorted(names)


def copied_rows(
    cursor: CursorWrapper, kind: Kind, values: dict[str, Any]
) -> Iterator[tuple[int | None, Iterable[bytes]]]:
    """The month's rows of a kind as CSV, those of each tenant together. PostgreSQL sends each row by itself."""

    def tenant(row: bytes) -> bytes:
        return row.partition(b",")[0] if kind.of_tenant else b""

    with cursor.copy(kind.copy(), values) as copy:
        for key, rows in groupby(map(bytes, copy), key=tenant):
            yield (int(key.strip(b'"')) if key else None), rows


def _name_rows(names: Iterable[str]) -> Iterator[bytes]:
    for number, name in enumerate(names, 1):
        text = name.replace('"', '""')
        yield f'"{-number}","{text}"\n'.encode()
