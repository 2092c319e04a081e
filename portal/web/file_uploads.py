"""Whose files are taken at all: Django spools every file of every form, before any view says whether it may be sent."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.core.files.uploadhandler import FileUploadHandler

from billing.rating.file_imports import LARGEST
from portal.core.tenants.access import rights_of

AROUND = 1 << 20  # bytes of a form beside its file


class OperatorsAlone(FileUploadHandler):
    """Refuses a form with files of anybody but an operator, and one that no page takes, before a byte of it is kept.

    Where the token of a form is looked for, all of it is read: else strangers would fill the disk below /tmp, which in
    containers is memory.
    """

    def handle_raw_input(
        self,
        input_data: Any,
        META: dict[str, str],  # noqa: N803 - Django's name
        content_length: int,
        boundary: str,
        encoding: str | None = None,
    ) -> None:
        """Raises RequestDataTooBig, which is answered with 400."""
        del input_data, META, boundary, encoding
        most = LARGEST + AROUND if self.request is not None and rights_of(self.request.user) else AROUND
        if content_length > most:
            raise RequestDataTooBig(f"a form of {content_length} bytes, of {most} that are taken")

    def receive_data_chunk(self, raw_data: bytes, start: int) -> bytes:
        """To the handlers after it."""
        del start
        return raw_data

    def file_complete(self, file_size: int) -> None:
        """Theirs, too."""
