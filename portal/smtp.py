"""Mail over SMTP as Django sends it, keeping which addresses of a mail the server refused while it took the others."""

from __future__ import annotations

import smtplib
from typing import Any

from django.core.mail.backends.smtp import EmailBackend as DjangoBackend

Refusals = dict[str, tuple[int, bytes]]


class _Plain(smtplib.SMTP):
    """Django throws away what `sendmail` answers."""

    refused: Refusals | None = None

    def sendmail(self, *args: Any, **options: Any) -> Refusals:
        self.refused = None
        self.refused = super().sendmail(*args, **options)
        return self.refused


class _Encrypted(smtplib.SMTP_SSL):
    """As `_Plain`."""

    refused: Refusals | None = None

    def sendmail(self, *args: Any, **options: Any) -> Refusals:
        self.refused = None
        self.refused = super().sendmail(*args, **options)
        return self.refused


class EmailBackend(DjangoBackend):
    """Its connection has `refused`: of the last mail, the addresses that were refused."""

    @property
    def connection_class(self) -> type[smtplib.SMTP]:
        return _Encrypted if self.use_ssl else _Plain
