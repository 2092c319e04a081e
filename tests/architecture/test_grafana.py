"""The dashboards that deploy/ has are those that are generated, and such as every Grafana takes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusters.connectors.prometheus.options import PrometheusOptions
from portal.env import ROOT
from portal.ops.grafana.dashboards import DASHBOARDS, Which
from portal.ops.grafana.panels import Json
from portal.ops.management.commands.grafana_dashboard import text_of

DIRECTORY = ROOT / "deploy" / "grafana"
WIDTH = 24
FORMATS = {"timeseries": "time_series", "stat": "time_series", "table": "table"}


def dashboard_file(which: Which) -> Path:
    return DIRECTORY / f"clustertab-{which}.json"


@pytest.fixture(params=list(Which))
def dashboard(request: pytest.FixtureRequest) -> Json:
    return DASHBOARDS[request.param](PrometheusOptions())


@pytest.mark.parametrize("which", list(Which))
def test_what_is_kept_is_what_is_generated(which: Which) -> None:
    """Made anew by `./run manage grafana_dashboard cluster > deploy/grafana/clustertab-cluster.json`."""
    assert dashboard_file(which).read_text() == text_of(DASHBOARDS[which](PrometheusOptions())) + "\n"


def test_nothing_else_is_kept() -> None:
    assert sorted(DIRECTORY.iterdir()) == sorted(dashboard_file(which) for which in Which)


def test_it_is_the_classic_model_of_a_number_that_older_servers_know(dashboard: Json) -> None:
    assert 39 <= dashboard["schemaVersion"] <= 41
    assert re.fullmatch(r"[a-z-]{1,40}", dashboard["uid"])
    assert dashboard["title"]
    assert "id" not in dashboard, "the server gives it one"
    assert {"templating", "time", "panels", "annotations", "tags", "timezone"} <= set(dashboard)
    assert json.loads(text_of(dashboard)) == dashboard


def test_every_panel_and_query_takes_the_chosen_prometheus(dashboard: Json) -> None:
    source, *others = dashboard["templating"]["list"]
    assert (source["name"], source["type"], source["query"]) == ("datasource", "datasource", "prometheus")
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    for asking in (*others, *dashboard["panels"], *targets(dashboard)):
        assert asking["datasource"] == chosen


def targets(dashboard: Json) -> Iterator[Json]:
    for panel in dashboard["panels"]:
        yield from panel["targets"]


def test_every_panel_is_of_a_type_that_is_not_gone_and_asks_in_its_form(dashboard: Json) -> None:
    for panel in dashboard["panels"]:
        assert panel["type"] in FORMATS
        assert panel["title"]
        assert panel["description"]
        assert set(panel["fieldConfig"]) == {"defaults", "overrides"}
        assert [target["refId"] for target in panel["targets"]] == list("ABC"[: len(panel["targets"])])
        for target in panel["targets"]:
            assert target["format"] == FORMATS[panel["type"]]
            assert target["range"] is (panel["type"] == "timeseries")
            assert target["instant"] is not target["range"]
            assert target["expr"].count("(") == target["expr"].count(")")


def test_panels_have_a_number_each_and_lie_over_no_other(dashboard: Json) -> None:
    numbers = [panel["id"] for panel in dashboard["panels"]]
    assert numbers == list(range(1, len(numbers) + 1))
    covered_cells: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert set(place) == {"x", "y", "w", "h"}
        assert place["x"] + place["w"] <= WIDTH
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & covered_cells, panel["title"]
        covered_cells |= cells


def test_only_variables_that_there_are_stand_in_expressions(dashboard: Json) -> None:
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    used = {name for target in targets(dashboard) for name in re.findall(r"\$([a-z]\w*)", target["expr"])}
    assert used <= variables
    assert variables - used == {"datasource"}


def test_columns_of_a_table_are_labels_of_its_expression(dashboard: Json) -> None:
    for panel in dashboard["panels"]:
        for change in panel.get("transformations", []):
            if change["id"] == "organize":
                shown = set(change["options"]["renameByName"]) - {"Value"}
                (target,) = panel["targets"]
                assert all(label in target["expr"] for label in shown)
                assert (
                    panel["options"]["sortBy"][0]["displayName"] == change["options"]["renameByName"]["Value"]
                )
