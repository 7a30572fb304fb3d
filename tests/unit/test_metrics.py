"""The registry: its text in both formats, and a source that fails."""

import asyncio
import threading

import pytest
from prometheus_client import exposition
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from tests.exposition import Scrape

from corral import metrics
from corral.metrics import Histogram, Registry, Stages, counter, gauge, histogram

OPEN_METRICS = "application/openmetrics-text;version=1.0.0"
HOSTILE = 'a "quoted" \\ word\nand a line'


async def scraped(**sources) -> Scrape:
    body, _ = await Registry(**sources).text()
    return Scrape(body.decode())


def source(*families):
    async def collect():
        return families

    return collect


def counted(value: float, **labels: str):
    family = counter("things_total", "Things.")
    family.add(value, labels)
    return family


async def test_labels_and_help_are_escaped_and_read_back_whole():
    family = gauge("thing", HOSTILE)
    family.add(1, {"name": HOSTILE})
    scrape = await scraped(things=source(family))
    assert scrape.value("thing", name=HOSTILE) == 1
    assert scrape.families["thing"].documentation == HOSTILE
    assert scrape.families["thing"].type == "gauge"


async def test_families_of_one_name_are_merged():
    body, _ = await Registry(a=source(counted(1, node="a")), b=source(counted(2, node="b"))).text()
    assert body.count(b"# TYPE things_total counter") == 1
    scrape = Scrape(body.decode())
    assert scrape.value("things_total", node="a") == 1
    assert scrape.value("things_total", node="b") == 2


async def test_a_histogram_counts_from_the_smallest_bound_up():
    took = Histogram((0.5, 2))
    for seconds in (0.5, 0.6, 2, 100):
        took.observe(seconds)
    family = histogram("took_seconds", "How long.")
    family.add_histogram(took, {"what": "it"})
    scrape = await scraped(it=source(family))
    counts = [scrape.value("took_seconds_bucket", le=bound) for bound in ("0.5", "2.0", "+Inf")]
    assert counts == [1, 3, 4]
    assert scrape.value("took_seconds_count") == 4
    assert scrape.value("took_seconds_sum") == pytest.approx(103.1)


async def test_open_metrics_are_served_on_request():
    family = histogram("took_seconds", "How long.")
    family.add_histogram(Histogram(), {})
    registry = Registry(process=metrics.process, it=source(family, counted(3)))
    body, media_type = await registry.text(OPEN_METRICS)
    assert media_type.startswith("application/openmetrics-text")
    read = {each.name: each for each in text_string_to_metric_families(body.decode())}
    assert read["things"].samples[0].value == 3
    assert read["process_cpu_seconds"].type == "counter"


async def test_a_source_that_fails_hides_no_other():
    async def fail():
        raise ZeroDivisionError

    registry = Registry(bad=fail, good=source(counted(1)))
    await registry.text()
    scrape = Scrape((await registry.text())[0].decode())
    assert scrape.value("things_total") == 1
    assert scrape.value("corral_scrape_failures_total", source="bad") == 2
    assert scrape.value("corral_scrape_failures_total", source="good") == 0


@pytest.mark.looptime
async def test_a_source_that_hangs_is_not_waited_for(looptime):
    registry = Registry(stuck=asyncio.Event().wait, good=source(counted(1)))
    scrape = Scrape((await registry.text())[0].decode())
    assert looptime == metrics.SOURCE_SECONDS
    assert scrape.value("things_total") == 1
    assert scrape.value("corral_scrape_failures_total", source="stuck") == 1


async def test_others_have_their_turn_while_much_is_written(monkeypatch):
    begun, others = threading.Event(), threading.Event()

    def encode(_collector):
        begun.set()
        return b"both" if others.wait(60) else b"alone"

    monkeypatch.setattr(exposition, "choose_encoder", lambda _accept: (encode, "text/plain"))
    writing = asyncio.create_task(Registry().text())
    while not begun.is_set():
        await asyncio.sleep(0)
    others.set()
    assert await writing == (b"both", "text/plain")


@pytest.mark.looptime
async def test_a_stage_lasts_from_the_end_of_the_one_before():
    stages = Stages("stage_seconds", "Stages.", (1, 10))
    stages.begin("a")
    await asyncio.sleep(2)
    stages.end("first", "a")
    await asyncio.sleep(20)
    stages.end("second", "a")
    stages.end("first", "never begun")
    stages.forget("a")
    stages.end("second", "a")
    scrape = await scraped(stages=source(stages.family()))
    assert scrape.value("stage_seconds_sum", stage="first") == 2
    assert scrape.value("stage_seconds_sum", stage="second") == 20
    assert scrape.value("stage_seconds_count", stage="second") == 1
