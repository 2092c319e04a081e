"""Why a month cannot be sealed or unsealed."""

from __future__ import annotations

from billing.sealed_months.messages import SENTENCES
from portal.errors import CodedError


class SealError(CodedError):
    """A month cannot be sealed or unsealed; the message says why. Nothing was changed."""

    sentences = SENTENCES
