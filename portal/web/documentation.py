"""The documentation in the portal: the pages of docs/ as they stand beside the code, for everybody who is signed in."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import get_script_prefix, reverse
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.token import Token

from portal.core.tenants.models import User
from portal.env import ROOT
from portal.web.access_decorators import answer, frame_of

DOCS = ROOT / "docs"
INDEX = "## Documentation"  # the heading in README.md below which all pages are named


@dataclass(frozen=True, slots=True)
class Document:
    title: str
    html: SafeString


@login_required
def documentation(request: HttpRequest) -> HttpResponse:
    """All pages by group, as README.md names them."""
    return _answer(request, _index(get_script_prefix()))


@login_required
def documentation_page(request: HttpRequest, page: str) -> HttpResponse:
    """One page. 404 for what is no page of docs/."""
    if page not in pages():
        raise Http404("no such page of the documentation")
    return _answer(request, _document(get_script_prefix(), page))


def _answer(request: HttpRequest, document: Document) -> HttpResponse:
    frame = frame_of(cast("User", request.user), area="")
    return answer(request, frame, {"document": document}, whole="documentation.html")


@lru_cache(1)
def pages() -> dict[str, Path]:
    """By name, `explanation/amounts`, the files that are shown."""
    return {path.relative_to(DOCS).with_suffix("").as_posix(): path for path in sorted(DOCS.rglob("*.md"))}


@lru_cache(64)
def _document(_prefix: str, page: str) -> Document:
    return _rendered(pages()[page].read_text(), f"docs/{page}.md")


@lru_cache(2)
def _index(_prefix: str) -> Document:
    text = (ROOT / "README.md").read_text().partition(f"{INDEX}\n")[2].partition("\n## ")[0]
    return _rendered(f"# Documentation\n{text}", "README.md")


def anchor_of(heading: str) -> str:
    """Lower case, without punctuation, hyphens for spaces, as links in the documentation have it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _rendered(text: str, place: str) -> Document:
    """Of a file at that place below the project. HTML in it is shown as text."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(text)
    title = ""
    for position, token in enumerate(tokens):
        if token.type == "heading_open":
            heading = tokens[position + 1]
            name = "".join(
                part.content for part in heading.children or () if part.type in {"text", "code_inline"}
            )
            title = title or name
            token.attrSet("id", anchor_of(heading.content))
        if token.type == "inline":
            token.children = _linked(token.children or [], place)
    parser.add_render_rule("table_open", _table_open)
    parser.add_render_rule("table_close", _table_close)
    parser.add_render_rule("fence", _fence)
    html = parser.renderer.render(tokens, parser.options, {})
    return Document(title, mark_safe(html))  # noqa: S308 - of the project's own files, without HTML


def _linked(parts: Sequence[Token], place: str) -> list[Token]:
    """With addresses of the portal for pages; what else of the project is named stays a text, as pictures do."""
    linked, dropped = list[Token](), list[bool]()
    for part in parts:
        if part.type == "image":
            linked.append(Token("text", "", 0, content=part.content))
            continue
        if part.type == "link_open":
            href = _address(str(part.attrGet("href")), place)
            dropped.append(href is None)
            part.attrSet("href", href or "")
        is_dropped = bool(dropped) and dropped[-1]
        if part.type == "link_close":
            dropped.pop()
        if part.type not in {"link_open", "link_close"} or not is_dropped:
            linked.append(part)
    return linked


def _address(target: str, place: str) -> str | None:
    """Where a link leads in the portal; None where it shows no such thing."""
    if "://" in target or target.startswith(("#", "mailto:")):
        return target
    path, _, anchor = unquote(target).partition("#")
    name = posixpath.normpath(posixpath.join(posixpath.dirname(place), path))
    page = name.removeprefix("docs/").removesuffix(".md")
    if not name.startswith("docs/") or page not in pages():
        return None
    return reverse("documentation_page", args=[page]) + (f"#{anchor}" if anchor else "")


def _table_open(*_: Any) -> str:
    return '<div class="ct-scroll" tabindex="0" role="region" aria-label="Table"><table class="table">'


def _table_close(*_: Any) -> str:
    return "</table></div>"


def _fence(_renderer: object, tokens: Sequence[Token], position: int, *_: Any) -> str:
    return f'<pre class="ct-code" tabindex="0"><code>{escape(tokens[position].content)}</code></pre>\n'
