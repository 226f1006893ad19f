"""The Grafana dashboard: as Grafana documents its JSON model, and about metrics that there are.

`scripts/check_dashboard` checks it against the types of Grafana's own package, which needs npm.
https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema

from tuner.live.families import OF_QUEUE, OF_RUNS
from tuner.live.metrics import STORAGE_UP, UNREADABLE_RUNS

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "cluster" / "grafana.json").read_text())
PAGE = (ROOT / "docs" / "how-to" / "export-metrics.md").read_text()
LABELS = {STORAGE_UP: (), UNREADABLE_RUNS: ()}
LABELS |= {run.name: run.labels for run in OF_RUNS} | {queue.name: queue.labels for queue in OF_QUEUE}


def shape(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    """An object with these keys and no other."""
    return {
        "type": "object",
        "properties": required | optional,
        "required": list(required),
        "additionalProperties": False,
    }


TEXT, WHOLE, YES_NO, ANY = (
    {"type": "string"},
    {"type": "integer", "minimum": 0},
    {"type": "boolean"},
    {"type": "object"},
)
SOURCE = shape({"type": {"const": "prometheus"}, "uid": {"const": "${datasource}"}})
PLACE = shape({"x": {**WHOLE, "maximum": 23}, "y": WHOLE, "w": {**WHOLE, "minimum": 1, "maximum": 24}, "h": WHOLE})
TARGET = shape(
    {"refId": TEXT, "datasource": SOURCE, "expr": TEXT, "legendFormat": TEXT},
    instant=YES_NO,
    range=YES_NO,
    format={"enum": ["table", "time_series"]},
)
COMMON = {"id": {**WHOLE, "minimum": 1}, "title": TEXT, "gridPos": PLACE}
PANEL = shape(
    {
        **COMMON,
        "type": {"enum": ["stat", "table", "timeseries"]},
        "description": TEXT,
        "datasource": SOURCE,
        "targets": {"type": "array", "items": TARGET, "minItems": 1},
        "fieldConfig": shape({"defaults": ANY, "overrides": {"type": "array"}}),
        "options": ANY,
    },
    transformations={"type": "array", "items": shape({"id": TEXT, "options": ANY})},
)
ROW = shape({**COMMON, "type": {"const": "row"}, "collapsed": YES_NO, "panels": {"const": []}})
VARIABLE = shape(
    {"name": TEXT, "type": {"enum": ["datasource", "query"]}, "label": TEXT, "query": {"type": ["string", "object"]}},
    **dict.fromkeys(("multi", "includeAll"), YES_NO),
    **{name: {"enum": [0, 1, 2]} for name in ("hide", "refresh", "sort")},
    **{"datasource": SOURCE, "options": {"const": []}, "regex": TEXT, "allValue": TEXT},
    current=shape({"selected": YES_NO, "text": {"type": "array"}, "value": {"type": "array"}}),
)
SCHEMA = shape(
    {
        "title": TEXT,
        "uid": {**TEXT, "maxLength": 40},
        "schemaVersion": {"const": 42},
        "panels": {"type": "array", "items": {"anyOf": [PANEL, ROW]}},
        "templating": shape({"list": {"type": "array", "items": VARIABLE}}),
        "time": shape({"from": TEXT, "to": TEXT}),
    },
    **dict.fromkeys(("description", "timezone", "refresh"), TEXT),
    **dict.fromkeys(("version", "graphTooltip", "fiscalYearStartMonth"), WHOLE),
    **{
        "tags": {"type": "array"},
        "links": {"type": "array"},
        "annotations": ANY,
        "timepicker": ANY,
        "editable": YES_NO,
    },
)


def queries() -> list[str]:
    """All that the dashboard asks Prometheus."""
    asked = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", [])]
    variables = [one["query"]["query"] for one in DASHBOARD["templating"]["list"] if one["type"] == "query"]
    return asked + variables


def test_it_has_the_shape_that_grafana_documents() -> None:
    jsonschema.validate(DASHBOARD, SCHEMA)


def test_panels_have_their_own_ids_and_do_not_overlap() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        own = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert max(x for x, _ in own) < 24
        assert not own & cells, panel["title"]
        cells |= own


def test_each_metric_in_a_query_exists_and_has_the_labels_that_the_query_names() -> None:
    assert len(queries()) > 15
    for query in queries():
        names = re.findall(r"\btuner_\w+", query)
        assert names, query
        known = {"__name__", *(label for name in names for label in LABELS[name])}
        used = re.findall(r"(\w+)\s*=~?\s*\"", query)
        used += [label for group in re.findall(r"\bby \(([^)]*)\)", query) for label in group.split(", ")]
        assert set(used) <= known, query


def test_a_legend_names_labels_that_its_query_leaves() -> None:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            left = re.search(r"\bby \(([^)]*)\)", target["expr"])
            all_labels = {label for name in re.findall(r"\btuner_\w+", target["expr"]) for label in LABELS[name]}
            known = set(left[1].split(", ")) if left else all_labels
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= known, panel["title"]


def test_brackets_of_queries_are_closed_and_their_variables_are_defined() -> None:
    defined = {one["name"] for one in DASHBOARD["templating"]["list"]} | {"__rate_interval"}
    for query in queries():
        for opening, closing in ("()", "{}", "[]"):
            assert query.count(opening) == query.count(closing), query
        assert set(re.findall(r"\$(\w+)", query)) <= defined
    assert "datasource" in defined


def test_counters_are_asked_for_rates_or_sums_over_the_run() -> None:
    for query in queries():
        for counter in re.findall(r"\btuner_\w+_total\b", query):
            assert re.search(rf"(rate|increase|sum)\({counter}|saved_epochs", query), query


def test_the_page_lists_all_metrics_with_their_labels() -> None:
    rows = dict(re.findall(r"^\| `(tuner_\w+)` \| ([^|]*) \|", PAGE, re.MULTILINE))
    assert rows.keys() == LABELS.keys()
    for name, labels in rows.items():
        assert re.findall(r"`(\w+)`", labels) == list(LABELS[name])
