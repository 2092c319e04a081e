"""`./run pin`: each base image by the digest that its tag has now, so that a build next year takes the same bytes.

docker asks the registry, since it knows where that is and how to sign in. Either every image is pinned or no file
changes. Exit code 2 where docker, its buildx or the registry is missing.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

FILES = ("deploy/Dockerfile", "docker-compose.yml")
SECONDS = 60
# `FROM name:tag` and `image: name:tag`, pinned before or not. What has no tag is built here.
REFERENCE = re.compile(
    r"^(?P<word>FROM +|\s+image: *)(?P<tag>[\w./-]+:[\w.-]+)(?:@sha256:[0-9a-f]{64})?(?P<rest> .*)?$",
    re.MULTILINE,
)
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class PinError(Exception):
    """Why nothing is pinned; one sentence."""


def main(root: Path) -> int:
    try:
        for image in pin(root):
            print(image)
    except PinError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


def pin(root: Path) -> list[str]:
    """Write the digests into the files; returns the images as they stand there now. Again, it looks again."""
    if _docker("buildx", "version").returncode != 0:
        raise PinError("Nothing is pinned: docker has no buildx here, which asks the registry.")
    texts = {root / name: (root / name).read_text() for name in FILES}
    tags = sorted({match["tag"] for text in texts.values() for match in REFERENCE.finditer(text)})
    images = {tag: f"{tag}@{digest(tag)}" for tag in tags}
    for path, text in texts.items():
        path.write_text(REFERENCE.sub(lambda match: _line(match, images), text))
    return list(images.values())


def _line(match: re.Match[str], images: dict[str, str]) -> str:
    return f"{match['word']}{images[match['tag']]}{match['rest'] or ''}"


def digest(tag: str) -> str:
    """Of the index over all architectures. Raises PinError."""
    answer = _docker("buildx", "imagetools", "inspect", "--format", "{{json .Manifest}}", tag)
    if answer.returncode != 0:
        lines = answer.stderr.strip().splitlines() or ["docker gives no reason"]
        raise PinError(f"Nothing is pinned: {tag} cannot be resolved ({lines[0].strip()}).")
    try:
        value = str(json.loads(answer.stdout)["digest"])
    except (ValueError, KeyError, TypeError):
        value = ""
    if not DIGEST.fullmatch(value):
        raise PinError(f"Nothing is pinned: docker names no digest of {tag}.")
    return value


def _docker(*arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=SECONDS)
    except FileNotFoundError:
        raise PinError("Nothing is pinned: docker, which asks the registry, is not installed here.") from None
    except subprocess.TimeoutExpired:
        raise PinError(f"Nothing is pinned: docker does not answer within {SECONDS} s.") from None


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parent.parent))
