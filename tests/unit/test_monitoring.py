"""What the component `monitoring` asks Prometheus for is served, and its alerts lead to pages that exist."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from hummingbird_ai.metrics import CallMetrics
from hummingbird_operator.ingest.metrics import IngestMetrics
from hummingbird_operator.ingest.missed.catchup import Catchup
from hummingbird_operator.ingest.missed.replay import Replay
from hummingbird_operator.ingest.sqs.consumer import SqsMetrics
from hummingbird_operator.ingest.webhook.receiver import Webhook
from hummingbird_operator.kube.client import Kube
from hummingbird_operator.sandboxpools.metrics import PoolMetrics
from hummingbird_operator.telemetry import Metrics
from tests.unit.manifests import DEPLOYMENTS, MANIFESTS, ROOT, Object, ports, read, selected


class Noting(CollectorRegistry):
    """A registry that remembers its collectors."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[Any] = []

    def register(self, collector: Collector) -> None:
        super().register(collector)
        self.noted.append(collector)


@pytest.fixture(scope="module")
def served() -> dict[str, set[str]]:
    """Every series that a process of ours serves, with its labels."""
    found: dict[str, set[str]] = {}
    for registry in _registries():
        for collector in registry.noted:
            _give_it_a_series(collector)
        for metric in registry.collect():
            for sample in metric.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    return found


def _registries() -> Iterator[Noting]:
    operator, webhook, queue = Noting(), Noting(), Noting()
    nobody: Any = None
    Metrics.on(operator)
    PoolMetrics.on(operator)
    CallMetrics(operator)
    Kube(nobody, metrics=operator)
    yield operator
    IngestMetrics.on(webhook)
    for each in (Webhook, Replay, Catchup):
        each(**_needed(each), registry=webhook)
    yield webhook
    SqsMetrics.on(queue)
    yield queue


def _needed(kind: type[Any]) -> dict[str, Any]:
    """Nothing, for all that it works with: it does not work here."""
    missing = dataclasses.MISSING
    needed = [
        each for each in dataclasses.fields(kind) if each.init and each.default is each.default_factory is missing
    ]
    return {each.name: None for each in needed}


def _give_it_a_series(collector: Any) -> None:
    """One with labels serves nothing before they have a value."""
    for number in range(1, 6):
        try:
            collector.labels(*["x"] * number)
        except ValueError:
            continue
        return


RULES = [
    rule for group in read(MANIFESTS / "monitoring" / "rules.yaml")[0]["spec"]["groups"] for rule in group["rules"]
]
SERIES = re.compile(r"\b(hummingbird_[a-z_]+|up)\b(?:\{([^}]*)\})?")
MATCHER = re.compile(r'([a-z_]+)\s*(?:=~|!=|=)\s*"([^"]*)"')
OF_THE_TARGET = {"pod"}


def test_the_pod_monitor_reads_the_port_of_every_process() -> None:
    (monitor,) = read(MANIFESTS / "monitoring" / "podmonitor.yaml")
    assert selected(monitor["spec"]["selector"]) == sorted(DEPLOYMENTS)
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint == {"port": "health", "path": "/metrics"}
    assert all("health" in ports(name) for name in DEPLOYMENTS)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert_asks_for_series_and_labels_that_exist(rule: Object, served: dict[str, set[str]]) -> None:
    (monitor,) = read(MANIFESTS / "monitoring" / "podmonitor.yaml")
    target = {re.sub(r"\W", "_", label) for label in monitor["spec"]["podTargetLabels"]} | OF_THE_TARGET
    asked = SERIES.findall(re.sub(r"by \([^)]*\)", "", rule["expr"]))
    assert asked
    labels = set(target)
    for name, matchers in asked:
        own = target if name == "up" else served[name] | target
        assert {label for label, _ in MATCHER.findall(matchers)} <= own, name
        labels |= own
    grouped = {label for found in re.findall(r"by \(([^)]*)\)", rule["expr"]) for label in re.findall(r"\w+", found)}
    assert grouped <= labels
    shown = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    assert shown <= grouped, "only what the sum is made by is left to be shown"


def test_an_alert_compares_labels_with_words_that_the_code_writes() -> None:
    written = {
        node.value
        for folder in ("operator", "hummingbird_ai")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    for rule in RULES:
        for label, words in MATCHER.findall(rule["expr"]):
            if label not in {"code", "status", "app_kubernetes_io_name"}:
                assert set(words.split("|")) <= written, f"{rule['alert']}: {label}"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert_says_how_grave_it_is_and_which_page_goes_on_from_there(rule: Object) -> None:
    assert rule["labels"]["severity"] in {"warning", "critical"}
    page, anchor = rule["annotations"]["see"].split("#")
    headings = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(), re.MULTILINE)
    assert anchor in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_alerts_have_names_of_their_own() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(set(names)) == len(names)
