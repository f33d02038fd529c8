"""What the component `monitoring` asks Prometheus for is served, and its alerts lead to pages that exist."""

from __future__ import annotations

import ast
import dataclasses
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
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


# --- what the rules make of a history ---

Labels = frozenset[tuple[str, str]]
History = dict[str, Sequence[float | None]]
"""A value a minute of each series, as `name{label="value"}`; None where it is not scraped."""

TOKEN = re.compile(r'"[^"]*"|[a-zA-Z_]\w*|\d+[mhdw]?|=~|!=|[][{}(),=<>]')
MINUTES = {"m": 1, "h": 60, "d": 1440, "w": 10080}
COMPARED = {"<": operator.lt, ">": operator.gt}
OF_A_RANGE: dict[str, Callable[[list[float]], float]] = {
    "increase": lambda values: sum(after - before if after >= before else after for before, after in pairwise(values)),
    "max_over_time": max,
    "present_over_time": lambda values: 1.0,
}
OF_A_GROUP: dict[str, Callable[[list[float]], float]] = {"sum": sum, "max": max}


def minutes(span: str) -> int:
    return int(span[:-1]) * MINUTES[span[-1]]


class Asked:
    """As much of PromQL as the rules that are tried here need, at one minute of a history; it extrapolates nothing."""

    def __init__(self, expr: str, history: History, at: int) -> None:
        self.tokens, self.history, self.at = TOKEN.findall(expr), history, at

    def take(self, *tokens: str) -> str:
        return self.tokens.pop(0) if self.tokens and self.tokens[0] in tokens else ""

    def need(self, token: str) -> None:
        assert self.take(token), f"{token} before {self.tokens}"

    def vector(self) -> dict[Labels, float]:
        left = self.term()
        while self.take("or"):
            left = self.term() | left
        return left

    def term(self) -> dict[Labels, float]:
        left = self.comparison()
        while word := self.take("and", "unless"):
            right = self.comparison()
            left = {key: value for key, value in left.items() if (key in right) == (word == "and")}
        return left

    def comparison(self) -> dict[Labels, float]:
        left = self.operand()
        if not (sign := self.take("<", ">", "=")):
            return left
        holds = COMPARED.get(sign, operator.eq)
        self.take("=")  # the second half of ==
        right = dict.fromkeys(left, float(self.tokens.pop(0))) if self.tokens[0].isdigit() else self.operand()
        return {key: value for key, value in left.items() if key in right and holds(value, right[key])}

    def operand(self) -> dict[Labels, float]:
        word = self.tokens.pop(0)
        if word == "(":
            return self.inner()
        if word in OF_A_GROUP:
            return self.grouped(OF_A_GROUP[word])
        if word not in OF_A_RANGE:
            return {key: values[-1] for key, values in self.selected(word).items()}
        self.need("(")
        found = self.selected(self.tokens.pop(0))
        self.need(")")
        return {key: OF_A_RANGE[word](values) for key, values in found.items()}

    def inner(self) -> dict[Labels, float]:
        found = self.vector()
        self.need(")")
        return found

    def grouped(self, combine: Callable[[list[float]], float]) -> dict[Labels, float]:
        by: list[str] = []
        if self.take("by"):
            self.need("(")
            while not self.take(")"):
                by += [self.tokens.pop(0)]
                self.take(",")
        self.need("(")
        groups: dict[Labels, list[float]] = {}
        for key, value in self.inner().items():
            groups.setdefault(frozenset(pair for pair in key if pair[0] in by), []).append(value)
        return {key: combine(values) for key, values in groups.items()}

    def selected(self, name: str) -> dict[Labels, list[float]]:
        matchers = []
        if self.take("{"):
            while not self.take("}"):
                label, sign, words = (self.tokens.pop(0) for _ in range(3))
                matchers.append((label, sign, words.strip('"')))
                self.take(",")
        width, offset = self.span("["), self.span("offset")
        end = self.at - offset + 1
        found = {}
        for series, values in self.history.items():
            asked, labels = SERIES.findall(series)[0][0], MATCHER.findall(series)
            window = [value for value in values[max(0, end - width - 1) : max(0, end)] if value is not None]
            if asked == name and window and all(_meets(dict(labels), *each) for each in matchers):
                found[frozenset(labels)] = window
        return found

    def span(self, before: str) -> int:
        span = minutes(self.tokens.pop(0)) if self.take(before) else 0
        self.take("]")
        return span


def _meets(labels: dict[str, str], label: str, sign: str, words: str) -> bool:
    value = labels.get(label, "")
    return bool(re.fullmatch(words, value)) if sign == "=~" else (value == words) == (sign == "=")


def firing(alert: str, history: History) -> list[dict[str, str]]:
    """The labels with which an alert fires at the last minute of a history."""
    (rule,) = (each for each in RULES if each["alert"] == alert)
    last = max(map(len, history.values())) - 1
    held = range(last - minutes(rule.get("for", "0m")), last + 1)
    return [dict(key) for key in set.intersection(*(set(Asked(rule["expr"], history, at).vector()) for at in held))]


def _pool(standby: Sequence[float | None], wanted: Sequence[float | None]) -> History:
    return {
        'hummingbird_sandboxpool_members{pool="default",state="standby"}': [*standby],
        'hummingbird_sandboxpool_members{pool="default",state="active"}': [0] * len(standby),
        'hummingbird_sandboxpool_spec_replicas{pool="default"}': [*wanted],
    }


def test_a_pool_is_empty_only_while_it_wants_members() -> None:
    assert firing("HummingbirdPoolEmpty", _pool([0] * 20, [3] * 20)) == [{"pool": "default"}]
    assert firing("HummingbirdPoolEmpty", _pool([0] * 20, [0] * 20)) == []
    gone = [None] * 15
    assert firing("HummingbirdPoolEmpty", _pool([0, 0, *gone], [3, 3, *gone])) == []


@pytest.mark.parametrize("name", DEPLOYMENTS)
@pytest.mark.parametrize(("end", "down"), [([0.0] * 4, True), ([None] * 4, True), ([1.0] * 4, False)])
def test_a_process_is_down_whether_its_pods_do_not_answer_or_there_are_none(
    name: str, end: list[float | None], *, down: bool
) -> None:
    up = f'up{{app_kubernetes_io_name="{name}",pod="%s"}}'
    answering = [1.0] * 30
    history: History = {up % "a": [*answering, *end], up % "b": [*answering, *[None] * 4], 'up{pod="x"}': [0.0] * 34}
    assert firing("HummingbirdProcessDown", history) == ([{"app_kubernetes_io_name": name}] if down else [])


def test_a_process_that_never_was_is_not_down_nor_one_that_was_taken_away_a_day_ago() -> None:
    name = 'up{app_kubernetes_io_name="hummingbird-ingest-sqs",pod="a"}'
    assert firing("HummingbirdProcessDown", {"up": [1.0] * 60}) == []
    assert firing("HummingbirdProcessDown", {name: [1.0] * 60 + [None] * 1500}) == []


WAITS = {
    "HummingbirdRunsPending": ("Pending", 'hummingbird_agentrun_steps_total{step="accept",result="ok"}'),
    "HummingbirdRunsWaiting": ("Waiting", 'hummingbird_sandbox_claim_seconds_count{launch="warm"}'),
}


@pytest.mark.parametrize("alert", WAITS)
def test_runs_that_wait_alert_only_while_none_goes_on(alert: str) -> None:
    phase, counter = WAITS[alert]
    waiting: History = {f'hummingbird_agentruns{{phase="{phase}"}}': [2.0] * 60}
    assert firing(alert, waiting), "a process that never began one"
    assert firing(alert, waiting | {counter: [9.0] * 60})
    assert not firing(alert, waiting | {counter: [float(minute // 4) for minute in range(60)]}), "busy"
    assert not firing(alert, {f'hummingbird_agentruns{{phase="{phase}"}}': [None] * 60})


def _counted(name: str, *processes: list[float | None], **labels: str) -> History:
    told = "".join(f',{label}="{value}"' for label, value in labels.items())
    return {f'{name}{{pod="{number}"{told}}}': values for number, values in enumerate(processes)}


@pytest.mark.parametrize(("reason", "alerts"), [("no_project", False), ("forbidden", True), ("bad_payload", True)])
def test_events_of_projects_that_are_not_listed_are_not_refused(reason: str, *, alerts: bool) -> None:
    """A group's hook tells of all its projects."""
    history = _counted("hummingbird_ingest_events_total", [float(n) for n in range(90)], source="gitlab", reason=reason)
    assert firing("HummingbirdEventsRefused", history) == ([{"reason": reason}] if alerts else [])


CAUGHT_UP = "hummingbird_ingest_caught_up_total"


def test_what_was_missed_and_started_alerts_once() -> None:
    alert = "HummingbirdHookWasDisabled"
    started = {"event": "note", "result": "started"}
    assert firing(alert, _counted(CAUGHT_UP, [None] * 60 + [2.0], **started)) == [{"result": "started"}]
    assert not firing(alert, _counted(CAUGHT_UP, [None] * 60 + [2.0] * 70, **started))
    after_a_restart = _counted(CAUGHT_UP, [2.0] * 90 + [None] * 20, [None] * 110, **started)
    assert not firing(alert, after_a_restart)


@pytest.mark.parametrize("result", ["left_out", "failed", "put_off"])
def test_what_stays_missed_alerts_once_though_each_process_finds_it_again(result: str) -> None:
    alert, found = "HummingbirdMissedEventsStay", {"event": "note", "result": result}
    before: list[float | None] = [3.0] * 100 + [None] * 20
    later: list[float | None] = [None] * 100
    assert firing(alert, _counted(CAUGHT_UP, [None] * 60 + [3.0], **found)) == [found]
    assert not firing(alert, _counted(CAUGHT_UP, [*before[:100]], **found))
    assert not firing(alert, _counted(CAUGHT_UP, before, [*later, *[3.0] * 20], **found)), "a restart"
    assert firing(alert, _counted(CAUGHT_UP, before, [*later, *[4.0] * 20], **found)) == [found], "one more"
    assert not firing(alert, _counted(CAUGHT_UP, [None] * 60 + [3.0], **found | {"result": "nothing"}))
