"""Sealing a month: its rows as files that were read back and compared with the ledger, all of it or nothing."""

from __future__ import annotations

from datetime import date, datetime

from django.db import transaction

from billing.catalog import billing_periods
from billing.models import ProofMark, SealedFile, SealedMonth
from billing.proof import months
from billing.sealed_months import folder, object_storage, parquet, readiness, verify
from billing.sealed_months.errors import SealError
from billing.sealed_months.writer import MonthWriter, number_users
from portal.core.locks import Work, alone
from portal.core.one_sight import one_sight


def seal_month(*, month: date, moment: datetime, quiet_months: int) -> SealedMonth:
    """Write the files of a month, and say that it is sealed once they equal the ledger and are on the disk, and in the
    bucket where one is set.

    Asked again, the same. Killed anywhere, or where the disk is full, it is not sealed, and the next call begins anew.
    Raises SealError. The rows stay in the database.
    """
    folder.directory()
    with alone(Work.SEALING) as ours:
        if not ours:
            raise SealError("busy")
        if (row := SealedMonth.objects.filter(month=month).first()) is not None:
            return row
        months.prove_due(moment=moment)
        state = readiness.state_of(month, moment=moment, quiet_months=quiet_months)
        if state.blockers:
            raise state.blockers[0]
        if (period := readiness.differing_close(month)) is not None:
            raise SealError("close-differs", period=billing_periods.name(period), tenant=period.tenant)
        row = SealedMonth(month=month, sealed_at=moment, changed_at=state.changed_at)
        number_users(row, state.within)
        try:
            with folder.scratch(month) as scratch:
                files = scratch / f"{row}"  # alone: what the program needs beside is not published
                files.mkdir(mode=0o700)
                with parquet.program(scratch) as program, one_sight() as cursor:
                    if ProofMark.objects.filter(month=month).exists():
                        raise SealError("written-to", month=f"{row}")
                    written = list(MonthWriter(row, state.within, cursor, program, files).write())
                object_storage.store(written, files)  # no transaction waits for a network
                folder.publish(files, month, {file.sha256 for file in written} | verify.disposable_digests())
                with transaction.atomic():
                    row.save()
                    SealedFile.objects.bulk_create(written)
        except (OSError, parquet.ParquetError) as error:
            raise SealError("unwritable", month=f"{row}", reason=str(error)) from error
        return row
