"""The pieces of Grafana's classic JSON model that the dashboards are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

SOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
SCHEMA = 39  # the oldest that has all of this: an older Grafana would be told of a newer one in vain
WIDTH = 24  # of a dashboard, in columns


@dataclass(frozen=True, slots=True)
class Query:
    """An expression and what its series are called: `{{namespace}}`."""

    expression: str
    legend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """`kind`: stat, timeseries or table. `unit`: as Grafana names them. `columns`: of a table, labels to headings; the
    value is called `Value` and sorts it, the largest first."""

    title: str
    says: str  # what one sees, for people
    kind: str
    queries: Sequence[Query]
    unit: str = "short"
    width: int = 12
    height: int = 8
    red_from: float | None = None
    columns: Mapping[str, str] = field(default_factory=dict)


def dashboard(*, uid: str, title: str, says: str, variables: Sequence[Json], panels: Sequence[Panel]) -> Json:
    """Panels in rows from the left, in their order; a panel that does not fit begins a row."""
    return {
        "uid": uid,
        "title": title,
        "description": says,
        "tags": ["clustertab"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "",
        "time": {"from": "now-24h", "to": "now"},
        "refresh": "1m",
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": [_datasource(), *variables]},
        "panels": _placed(panels),
    }


def variable(name: str, label: str, query: str, *, regex: str = "") -> Json:
    """One or more of what `query` finds, of each the part in parentheses of `regex`; all of them at first."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": "Variable"},
        "definition": query,
        "refresh": 2,  # whenever the time range changes
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".+",
        "current": {"text": ["All"], "value": ["$__all"]},
        "options": [],
        "hide": 0,
        "regex": regex,
        "skipUrlSync": False,
    }


def _datasource() -> Json:
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
        "options": [],
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "refresh": 1,
        "regex": "",
        "skipUrlSync": False,
    }


def _placed(panels: Sequence[Panel]) -> list[Json]:
    models: list[Json] = []
    x = y = height = 0
    for number, panel in enumerate(panels, start=1):
        if x + panel.width > WIDTH:
            x, y, height = 0, y + height, 0
        place = {"x": x, "y": y, "w": panel.width, "h": panel.height}
        models.append(_model(panel, number, place))
        x, height = x + panel.width, max(height, panel.height)
    return models


def _model(panel: Panel, number: int, place: Mapping[str, int]) -> Json:
    model: Json = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.says,
        "datasource": SOURCE,
        "gridPos": dict(place),
        "targets": [_target(panel, query, place) for place, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": OPTIONS[panel.kind],
    }
    if panel.columns:
        model["transformations"] = _columns(panel.columns)
        model["options"] = model["options"] | {
            "sortBy": [{"displayName": panel.columns["Value"], "desc": True}]
        }
    return model


def _target(panel: Panel, query: Query, place: int) -> Json:
    graph = panel.kind == "timeseries"
    return {
        "refId": chr(ord("A") + place),
        "datasource": SOURCE,
        "editorMode": "code",
        "expr": query.expression,
        "legendFormat": query.legend or "__auto",
        "format": "table" if panel.kind == "table" else "time_series",
        "instant": not graph,
        "range": graph,
    }


def _defaults(panel: Panel) -> Json:
    steps: list[Json] = [{"color": "green", "value": None}]
    if panel.red_from is not None:
        steps.append({"color": "red", "value": panel.red_from})
    defaults: Json = {
        "unit": panel.unit,
        "thresholds": {"mode": "absolute", "steps": steps},
        "color": {"mode": "thresholds" if panel.kind == "stat" else "palette-classic"},
        "mappings": [],
    }
    if panel.unit == "percentunit":
        defaults |= {"min": 0, "max": 1}
    elif panel.kind == "timeseries":
        defaults["min"] = 0
    if panel.kind == "timeseries":
        defaults["custom"] = {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 10, "showPoints": "never"}
    return defaults


def _columns(renames: Mapping[str, str]) -> list[Json]:
    """These fields in their order, and nothing else that a sample has."""
    order = {name: place for place, name in enumerate(renames)}
    return [
        {"id": "filterFieldsByName", "options": {"include": {"names": list(renames)}}},
        {
            "id": "organize",
            "options": {"excludeByName": {}, "indexByName": order, "renameByName": dict(renames)},
        },
    ]


OPTIONS: Mapping[str, Json] = {
    "stat": {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value",
        "graphMode": "none",
        "textMode": "auto",
        "justifyMode": "auto",
        "orientation": "auto",
    },
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "table": {
        "showHeader": True,
        "cellHeight": "sm",
        "footer": {"show": False, "reducer": ["sum"], "countRows": False, "fields": ""},
    },
}
