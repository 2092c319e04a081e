"""The logo that an operator sends, made into what pages, e-mails and PDFs carry."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from portal.core.tenants import logo_encoder
from portal.core.tenants.brand_messages import SENTENCES
from portal.errors import CodedError

LARGEST = 4 << 20  # bytes of the file that is sent
PATIENCE = 30  # seconds


class BrandError(CodedError):
    """The brand cannot be so; the message says what to send instead."""

    sentences = SENTENCES


@dataclass(frozen=True, slots=True)
class Logo:
    """A PNG as we encoded it; without bytes: no logo."""

    png: bytes = b""
    width: int = 0  # pixels
    height: int = 0

    @property
    def digest(self) -> str:
        return sha256(self.png).hexdigest() if self.png else ""


def encode_logo(content: bytes) -> Logo:
    """A PNG, JPEG or WebP picture as a PNG of at most 640 × 160 pixels, without anything but pixels in it.

    The same picture gives the same bytes. Raises BrandError.
    """
    if len(content) > LARGEST:
        raise BrandError("logo-too-large", largest=LARGEST >> 20)
    try:
        answer = subprocess.run(
            [sys.executable, "-I", str(Path(logo_encoder.__file__))],
            input=content,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=PATIENCE,
            check=False,
        ).stdout
    except subprocess.TimeoutExpired:
        answer = b""
    if not answer.startswith(b"+"):
        code = answer[1:].decode("ascii", "replace")
        raise BrandError(code if code in SENTENCES else "logo-unreadable", longest=logo_encoder.LONGEST >> 10)
    _sign, width, height = logo_encoder.SIZE.unpack_from(answer)
    return Logo(answer[logo_encoder.SIZE.size :], width, height)
