"""The process that sets documents, one request after the other; `typesetting` starts it and speaks with it.

It imports nothing of ours. A request is JSON: the terms of an e-invoice, whose answer is the XML; or the name of a
template and what it takes, the file's date and the XML to attach with its name, whose answer is the PDF. Either may
be answered by why there is none. It ends when nobody asks for a while and when memory does not come back.
"""

from __future__ import annotations

import json
import os
import select
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from struct import Struct
from typing import IO, Any

HERE = Path(__file__).parent
SIZE = Struct(">Q")  # stands before each message
SET, REFUSED = b"+", b"-"  # the first byte of an answer
IDLE = 30  # seconds
AMPLE = 80 << 20  # bytes held above which what the typesetter remembers is thrown away
MOST = 112 << 20  # bytes held after that above which the process ends
EINVOICES = 64 << 20  # bytes more, once the libraries of e-invoices and their schema are loaded
AGE = 12  # documents after which the typesetter forgets what it has not used again


def main() -> None:
    import typst  # 8 MiB, which whoever imports the protocol does without

    profiles: list[list[typst.PDFStandard]] = [["a-3a", "ua-1"], ["1.7"]]
    fonts = typst.Fonts(include_system_fonts=False, include_embedded_fonts=False, font_paths=[HERE / "fonts"])
    templates = {
        name: typst.Compiler(input=HERE / f"{name}.typ", font_paths=fonts, ignore_system_fonts=True)
        for name in ("invoice", "receipt")
    }
    nothing = typst.Compiler(input=HERE / "nothing.typ", font_paths=fonts, ignore_system_fonts=True)

    def compiled(payload: dict[str, Any]) -> bytes:
        created = datetime.fromisoformat(payload["created"]).replace(tzinfo=UTC)
        source = {"document": json.dumps(payload["document"])}
        if payload["attached"]:
            source["attached"], source["attached-as"] = payload["attached"], payload["name"]
        for standards in profiles:
            try:
                pdf = templates[payload["template"]].compile(
                    format="pdf", sys_inputs=source, pdf_standards=standards, timestamp=created
                )
            except typst.TypstError as error:
                refusal = str(error)
            else:
                if not isinstance(pdf, bytes):
                    raise TypeError("a PDF is one piece of bytes")
                return SET + (declared(pdf, payload["name"]) if payload["attached"] else pdf)
        return REFUSED + refusal.encode(errors="replace")

    source, sink = _streams()
    more = 0
    while select.select([source], [], [], IDLE)[0] and (request := receive(source)) is not None:
        payload = json.loads(request)
        if "einvoice" in payload or payload["attached"]:
            more = EINVOICES
        send(sink, written(payload["einvoice"]) if "einvoice" in payload else compiled(payload))
        if _held() > AMPLE + more:
            for _ in range(AGE):  # it forgets by counting documents
                nothing.compile(format="pdf")
            if _held() > MOST + more:
                break


def written(terms: dict[str, Any]) -> bytes:
    """The XML of an e-invoice of these business terms, which its schema holds valid.

    A refusal stands for ever beside the document, so it is for what the library has against these terms. What befell
    this process is raised and ends it: nobody is answered, and asks again.
    """
    from facturx import generate_cii_xml  # 40 MiB, for those who need it
    from lxml.etree import XMLSchemaParseError

    specification = terms.pop("BT-24", PROFILE)  # the library writes its level's own
    try:
        xml = generate_cii_xml(terms, level="en16931", check_xsd=True, check_schematron=False)
    except Exception as error:  # it has no type of its own, and the invoice has a PDF without it
        reason: BaseException | None = error
        while reason is not None:
            if isinstance(reason, (MemoryError, OSError, ImportError, XMLSchemaParseError)):
                raise
            reason = reason.__cause__
        return REFUSED + " ".join(str(error).split()).encode(errors="replace")
    if not isinstance(xml, bytes):
        raise TypeError("an XML is one piece of bytes")
    return SET + xml.replace(f">{PROFILE}<".encode(), f">{specification}<".encode(), 1)


PROFILE = "urn:cen.eu:en16931:2017"


def declared(pdf: bytes, name: str) -> bytes:
    """The PDF, whose metadata say now that it is Factur-X; as it was where they have no place for that.

    The file's name tells the profile. What is new stands behind the old bytes, as the format allows it, so that
    the rest stays as it was set.
    """
    from pypdf import PdfWriter
    from pypdf.generic import StreamObject

    writer = PdfWriter(BytesIO(pdf), incremental=True)
    stream = writer.root_object["/Metadata"].get_object()
    if not isinstance(stream, StreamObject):
        raise TypeError("metadata are a stream")
    metadata = stream.get_data()
    if metadata.count(SCHEMAS) != 1 or metadata.count(END) != 1:
        return pdf
    facturx = FACTURX % (name.encode(), *LEVELS[name])
    stream.set_data(metadata.replace(SCHEMAS, SCHEMAS + FACTURX_SCHEMA).replace(END, facturx + END))
    out = BytesIO()
    writer.write(out)
    return out.getvalue()


SCHEMAS, END = b"<pdfaExtension:schemas><rdf:Bag>", b"</rdf:RDF>"
FACTURX = b"""<rdf:Description rdf:about="" xmlns:fx="urn:factur-x:pdfa:CrossIndustryDocument:invoice:1p0#">\
<fx:DocumentType>INVOICE</fx:DocumentType><fx:DocumentFileName>%s</fx:DocumentFileName>\
<fx:Version>%s</fx:Version><fx:ConformanceLevel>%s</fx:ConformanceLevel></rdf:Description>"""
LEVELS = {"factur-x.xml": (b"1.0", b"EN 16931"), "xrechnung.xml": (b"3.0", b"XRECHNUNG")}
"""By the file's name, which specification's version it follows, and what that is called."""
_PROPERTIES = {
    "DocumentFileName": "The name of the embedded XML document",
    "DocumentType": "The type of the hybrid document",
    "Version": "The version of the standard that the embedded XML follows",
    "ConformanceLevel": "The profile of the embedded XML",
}
_LISTED = "".join(
    f'<rdf:li rdf:parseType="Resource"><pdfaProperty:category>external</pdfaProperty:category>'
    f"<pdfaProperty:description>{told}</pdfaProperty:description><pdfaProperty:name>{name}</pdfaProperty:name>"
    f"<pdfaProperty:valueType>Text</pdfaProperty:valueType></rdf:li>"
    for name, told in _PROPERTIES.items()
)
FACTURX_SCHEMA = (
    '<rdf:li rdf:parseType="Resource"><pdfaSchema:schema>Factur-X PDFA Extension Schema</pdfaSchema:schema>'
    "<pdfaSchema:namespaceURI>urn:factur-x:pdfa:CrossIndustryDocument:invoice:1p0#</pdfaSchema:namespaceURI>"
    "<pdfaSchema:prefix>fx</pdfaSchema:prefix>"
    f"<pdfaSchema:property><rdf:Seq>{_LISTED}</rdf:Seq></pdfaSchema:property></rdf:li>"
).encode()


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
