"""The dashboard in the documents queries series that exist, and Grafana can read it."""

import json
import re
from pathlib import Path

import pytest
from tests.exposition import Scrape
from tests.sim.cluster import ADMIN, cluster

from corral.api.request import Request
from corral.metrics import Registry, process

DASHBOARD = Path(__file__).parent.parent.parent / "docs" / "grafana.json"
WORDS = {"by", "histogram_quantile", "increase", "label_values", "or", "rate", "sum", "vector"}
"""Words of queries that are neither metrics nor labels."""
LABELS = re.compile(r"\{[^}]*\}|\bby \([^)]*\)|\[[^\]]*\]|\$\w+")


def panels() -> list[dict]:
    return [one for one in json.loads(DASHBOARD.read_text())["panels"] if one["type"] != "row"]


def queries() -> list[str]:
    """Every query of the dashboard, those of its variables too."""
    variables = json.loads(DASHBOARD.read_text())["templating"]["list"]
    expressions = [one["query"]["query"] for one in variables if one["type"] == "query"]
    return expressions + [target["expr"] for panel in panels() for target in panel["targets"]]


def names(query: str) -> set[str]:
    """The metrics that a query is about: in label_values the last word is a label."""
    bare = LABELS.sub(" ", query)
    if bare.startswith("label_values"):
        bare = bare.rpartition(",")[0]
    return set(re.findall(r"[a-z_:][a-z0-9_:]*", bare)) - WORDS


def series(scrape: Scrape) -> set[str]:
    """The names that series can have: those of families without any at present, too."""
    found = set()
    for family in scrape.families.values():
        match family.type:
            case "counter":
                found.add(f"{family.name}_total")
            case "histogram":
                found |= {f"{family.name}_{part}" for part in ("bucket", "sum", "count")}
            case _:
                found.add(family.name)
    return found


@pytest.mark.looptime
async def test_every_metric_of_the_dashboard_is_exposed():
    async with cluster() as c:
        response = await c.server.handle(Request(method="GET", path="/metrics", user=ADMIN))
        known = series(await c.metrics()) | series(Scrape(response.body.decode()))
        body, _ = await Registry(process=process).text()
        known |= series(Scrape(body.decode()))
    queried = {name for query in queries() for name in names(query)}
    assert len(queried) > 20
    assert queried <= known


def test_the_dashboard_can_be_imported_by_grafana():
    dashboard = json.loads(DASHBOARD.read_text())
    assert dashboard["id"] is None  # Grafana gives one
    assert dashboard["schemaVersion"] >= 36
    numbers = [panel["id"] for panel in dashboard["panels"]]
    assert len(numbers) == len(set(numbers))
    for panel in panels():
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, panel["title"]
        assert panel["targets"]
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]


def test_panels_do_not_overlap():
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.parametrize("query", queries())
def test_brackets_of_queries_match(query):
    for opening, closing in ("()", "{}", "[]"):
        assert query.count(opening) == query.count(closing)
