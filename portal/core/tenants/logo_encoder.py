"""A program that makes a small PNG of a picture: the picture on standard input, the PNG on standard output.

It is a process of its own because what decodes pictures of strangers may need much memory, or fail in ways of its own:
both go away with it. It imports nothing of ours. The answer begins with `+`, width and height, or is `-` and the code
of the reason why there is none (`brand_messages`). What no decoder can read has no answer.
"""

from __future__ import annotations

import resource
import sys
from io import BytesIO
from struct import Struct
from typing import Any

SIZE = Struct(">cHH")  # stands before the PNG
FORMATS = ("PNG", "JPEG", "WEBP")
SMALLEST, LARGEST_SIDE, MOST_PIXELS = 16, 8_000, 16_000_000  # of the picture that is sent
WIDEST, HIGHEST = 640, 160  # pixels of the PNG: four times what pages show
LONGEST = 64 << 10  # bytes of the PNG: it stands in every e-mail and PDF
MEMORY, SECONDS = 768 << 20, 15
MOST_TURNS = 5
FAINT = 235  # of 255: from there on a picture on white cannot be seen


class RefusedError(ValueError):
    """The message is the code of the reason."""


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    try:
        answer = settled(sys.stdin.buffer.read())
    except RefusedError as refusal:
        answer = b"-" + str(refusal).encode()
    sys.stdout.buffer.write(answer)


def settled(content: bytes) -> bytes:
    """Encoded until that changes nothing: what is previewed is sent again, and saved as it was seen. As `encoded`."""
    answer = encoded(content)
    for _ in range(MOST_TURNS):
        again = encoded(answer[SIZE.size :])
        if again == answer:
            break
        answer = again
    return answer


def encoded(content: bytes) -> bytes:
    """Raises RefusedError, and whatever a decoder raises. Nothing but pixels is kept of the picture."""
    from PIL import Image, ImageOps

    Image.MAX_IMAGE_PIXELS = None  # what the head of the file says is checked below, before a pixel is read
    with Image.open(BytesIO(content), formats=FORMATS) as source:
        width, height = source.size
        if max(width, height) > LARGEST_SIDE or width * height > MOST_PIXELS:
            raise RefusedError("logo-too-many-pixels")
        if min(width, height) < SMALLEST:
            raise RefusedError("logo-too-small")
        if getattr(source, "n_frames", 1) > 1:
            raise RefusedError("logo-moves")
        picture = ImageOps.exif_transpose(source).convert("RGBA")
    visible = picture.getchannel("A").point(lambda alpha: 255 if alpha > 8 else 0)
    box = visible.getbbox()
    if box is None:
        raise RefusedError("logo-empty")
    picture = picture.crop(box)  # empty margins would make it small
    picture.thumbnail((WIDEST, HIGHEST), Image.Resampling.LANCZOS)
    paper = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("L")
    if not any(paper.histogram()[: FAINT + 1]):  # by shade of gray, how many pixels have it
        raise RefusedError("logo-white")
    png = _saved(picture)
    if len(png) > LONGEST:
        png = _saved(picture.quantize(256, method=Image.Quantize.FASTOCTREE))
    if len(png) > LONGEST:
        raise RefusedError("logo-too-detailed")
    return SIZE.pack(b"+", *picture.size) + png


def _saved(picture: Any) -> bytes:
    out = BytesIO()
    picture.save(out, "PNG", optimize=True)
    return out.getvalue()


if __name__ == "__main__":
    main()
