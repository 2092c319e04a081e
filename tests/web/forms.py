"""What a browser would send of a form that somebody sees, as far as tests of pages need it."""

from __future__ import annotations

from html.parser import HTMLParser


class _Form(HTMLParser):
    """Of all forms of the page that post; `values` are the fields as they stand."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, list[str]] = {}
        self._inside = False
        self._select = ""
        self._options: list[tuple[str, bool]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        name = attributes.get("name", "")
        is_box = attributes.get("type") in {"checkbox", "radio"}
        if tag == "form":
            self._inside = attributes.get("method") == "post" and "logout" not in attributes.get("action", "")
        elif tag == "select" and self._inside:
            self._select, self._options = name, []
        elif tag == "option" and self._select:
            self._options.append((attributes.get("value", ""), "selected" in attributes))
        elif tag == "input" and self._inside and name and ("checked" in attributes or not is_box):
            self.values.setdefault(name, []).append(attributes.get("value", "on"))

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._inside = False
        elif tag == "select" and self._select:
            chosen = [value for value, selected in self._options if selected]
            chosen = chosen or [value for value, _selected in self._options[:1]]
            self.values[self._select] = chosen
            self._select = ""


def fields(html: str) -> dict[str, list[str]]:
    """By name what stands in the page's forms that post, as it would be sent; no button is pressed."""
    form = _Form()
    form.feed(html)
    return form.values
