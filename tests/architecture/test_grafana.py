"""The dashboards that deploy/ has are such as every Grafana takes, and ask for what there is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusters.connectors.prometheus import queries
from clusters.connectors.prometheus.options import PrometheusOptions
from portal.env import ROOT
from portal.ops.grafana.dashboards import DASHBOARDS, Json, Which
from portal.ops.grafana.expressions import KAI, KUEUE, VOLCANO, Expressions
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
def test_what_is_kept_is_what_the_command_prints(which: Which) -> None:
    """After an edit in Grafana: `./run manage grafana_dashboard cluster > deploy/grafana/clustertab-cluster.json`."""
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


def test_every_metric_exists(dashboard: Json) -> None:
    """Ours are in the table of metrics, the others are series that the connector reads, or gauges of schedulers."""
    described = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    read = {KUEUE, VOLCANO, KAI, *(value for value in vars(queries).values() if isinstance(value, str))}
    for target in targets(dashboard):
        own = set(re.findall(r"\b(?:clustertab|training_job)_\w+", target["expr"]))
        others = set(re.findall(r"\b(\w+)\{", target["expr"])) | {
            name for names in re.findall(r'__name__=~"([^"]+)"', target["expr"]) for name in names.split("|")
        }
        assert own | others
        assert all(f"`{name}" in described for name in own), own
        assert others <= read | {metric.name for metric in PrometheusOptions().utilisation.metrics}


def test_what_follows_from_options_is_part_of_the_file() -> None:
    """A part that is not there would not be replaced by a cluster's own."""
    dashboard = DASHBOARDS[Which.CLUSTER](PrometheusOptions())
    variables = [variable.get("definition", "") for variable in dashboard["templating"]["list"]]
    expressions = [target["expr"] for target in targets(dashboard)] + variables
    for part in Expressions(PrometheusOptions()).parts:
        assert any(part in expression for expression in expressions), part
