"""The documentation opens in the portal, and an ⓘ beside a figure leads to the place that says how it is computed."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from django.test import Client

from portal.env import ROOT
from portal.web import documentation
from portal.web.help_texts import HELP
from tests.web.house import a_house, page, signed_in

pytestmark = pytest.mark.django_db

DOCS = "/reference/docs/"
TEMPLATES = "\n".join(path.read_text() for path in (ROOT / "templates").rglob("*.html"))


class Links(HTMLParser):
    """Where the article of a page leads, and its anchors."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.targets, self.anchors = list[str](), set[str]()
        self.feed(html.partition("<article")[2].partition("</article>")[0])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "a":
            self.targets.append(values["href"] or "")
        if "id" in values:
            self.anchors.add(values["id"] or "")


def test_every_page_of_the_documentation_opens_and_its_links_lead_to_others() -> None:
    house = a_house(close=False)
    ben = signed_in(house.ben)
    seen = {name: Links(ben.get(f"{DOCS}{name}/").content.decode()) for name in documentation.pages()}
    assert len(seen) > 30
    index = Links(page(house.ben, DOCS))
    assert {f"{DOCS}{name}/" for name in seen} == {
        target for target in index.targets if target.startswith(DOCS)
    }
    for name, links in seen.items():
        for target in links.targets:
            if "://" in target:
                continue
            path, _, anchor = target.partition("#")
            other = path.removeprefix(DOCS).strip("/") if path else name
            assert other in seen, f"{name} leads to {target}"
            assert not anchor or anchor in seen[other].anchors, f"{name} leads to {target}"
    html = page(house.ben, f"{DOCS}explanation/efficiency/")
    assert "<title>GPU efficiency reports · ClusterTab</title>" in html
    assert "<td>1,728,000</td>" in html
    assert f'href="{DOCS}"' in page(house.ben, "/t/vision-lab/")


def test_what_is_no_page_is_not_found_and_nobody_without_a_name_reads() -> None:
    ben = signed_in(a_house(close=False).ben)
    for name in ("none-such", "../DEVELOPERS", "../portal/settings", "examples/lab", "explanation"):
        assert ben.get(f"{DOCS}{name}/").status_code == 404, name
    assert Client().get(DOCS).status_code == 302
    assert Client().get(f"{DOCS}explanation/amounts/").status_code == 302


def test_html_and_scripts_in_a_page_are_text_and_what_is_no_page_is_no_link() -> None:
    document = documentation._rendered(
        "# A *b* `c`\n<script>x</script> [a](other.md) [b](javascript:x) [c](concepts.md#d) ![d](img/x.png)\n",
        "docs/page.md",
    )
    assert document.title == "A b c"
    assert "<script>" not in document.html
    assert re.findall(r'href="([^"]*)"', document.html) == [f"{DOCS}concepts/#d"]


def test_each_text_of_help_stands_on_a_page_and_leads_to_a_heading() -> None:
    tiles = "\n".join(path.read_text() for path in (ROOT / "portal" / "web").glob("*.py"))
    used = {*re.findall(r'{% help "([^"]+)" %}', TEMPLATES), *re.findall(r'\bhelp="([^"]+)"', tiles)}
    assert used == {*HELP}
    for key, one in HELP.items():
        file = documentation.pages()[one.page].read_text()
        headings = {documentation.anchor_of(name) for name in re.findall(r"^#+ (.+)$", file, re.MULTILINE)}
        assert one.anchor in headings, key
        assert len(re.findall(r"[.](?= |$)", one.text)) == 2, f"{key}: two sentences"


def test_ben_opens_the_help_beside_a_figure() -> None:
    house = a_house(close=False)
    html = page(house.ben, f"/t/vision-lab/jobs/{house.record('17')}/")
    details = re.search(r'<details class="ct-help">.*?</details>', html)
    assert details is not None
    assert '<summary aria-label="About: Cost of a job">' in details[0]
    assert "It is rounded once, together with the other jobs of its invoice line." in details[0]
    assert f'href="{DOCS}explanation/amounts/#from-a-job-to-a-line">How it is computed</a>' in details[0]
