"""The process that sets PDFs, one request after the other; `typesetting` starts it and speaks with it.

It imports nothing of ours. A request is the JSON that the template takes and the file's date; the answer is
the PDF, or why there is none. It ends when nobody asks for a while and when memory does not come back.
"""

from __future__ import annotations

import json
import os
import select
from datetime import UTC, datetime
from pathlib import Path
from struct import Struct
from typing import IO

HERE = Path(__file__).parent
SIZE = Struct(">Q")  # stands before each message
SET, REFUSED = b"+", b"-"  # the first byte of an answer
IDLE = 30  # seconds
AMPLE = 80 << 20  # bytes held above which what the typesetter remembers is thrown away
MOST = 112 << 20  # bytes held after that above which the process ends
AGE = 12  # documents after which the typesetter forgets what it has not used again


def main() -> None:
    import typst  # 8 MiB, which whoever imports the protocol does without

    profiles: list[list[typst.PDFStandard]] = [["a-3a", "ua-1"], ["1.7"]]
    fonts = typst.Fonts(include_system_fonts=False, include_embedded_fonts=False, font_paths=[HERE / "fonts"])
    invoices = typst.Compiler(input=HERE / "invoice.typ", font_paths=fonts, ignore_system_fonts=True)
    nothing = typst.Compiler(input=HERE / "nothing.typ", font_paths=fonts, ignore_system_fonts=True)

    def compiled(request: bytes) -> bytes:
        told = json.loads(request)
        created = datetime.fromisoformat(told["created"]).replace(tzinfo=UTC)
        source = {"document": json.dumps(told["document"])}
        for standards in profiles:
            try:
                pdf = invoices.compile(
                    format="pdf", sys_inputs=source, pdf_standards=standards, timestamp=created
                )
            except typst.TypstError as error:
                refusal = str(error)
            else:
                if not isinstance(pdf, bytes):
                    raise TypeError("a PDF is one piece of bytes")
                return SET + pdf
        return REFUSED + refusal.encode(errors="replace")

    source, sink = _streams()
    while select.select([source], [], [], IDLE)[0] and (request := receive(source)) is not None:
        send(sink, compiled(request))
        if _held() > AMPLE:
            for _ in range(AGE):  # it forgets by counting documents
                nothing.compile(format="pdf")
            if _held() > MOST:
                break


def send(sink: IO[bytes], message: bytes) -> None:
    """Raises BrokenPipeError where nobody listens."""
    sink.write(SIZE.pack(len(message)) + message)
    sink.flush()


def receive(source: IO[bytes]) -> bytes | None:
    """The next message; None where the other side has ended."""
    size = _exactly(source, SIZE.size)
    return _exactly(source, *SIZE.unpack(size)) if size else None


def _exactly(source: IO[bytes], size: int) -> bytes | None:
    pieces = bytearray()
    while len(pieces) < size:
        piece = source.read(size - len(pieces))
        if not piece:
            return None
        pieces += piece
    return bytes(pieces)


def _streams() -> tuple[IO[bytes], IO[bytes]]:
    """Where requests come from, unbuffered, and where answers go. What else is printed goes to the log."""
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return open(0, "rb", buffering=0, closefd=False), sink  # a descriptor, kept open


def _held() -> int:
    """Bytes of memory that this process holds; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


if __name__ == "__main__":
    main()
