"""What the configuration opens to the engine: no read without a read token, and never with the one that writes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from hummingbird_operator.agentruns.doors import ConfiguredDoors
from hummingbird_operator.agentruns.resolve import Order, resolve
from hummingbird_operator.config import Config
from hummingbird_operator.errors import Invalid
from hummingbird_operator.sessions.tools import ToolRegistry
from hummingbird_operator.settings import Settings
from hummingbird_operator.workflows import Workflow, Workflows
from tests.unit.agentruns.builders import CONFIG, run


def opened(source: dict[str, Any], *, project: dict[str, Any], **environ: str) -> tuple[ConfiguredDoors, Order]:
    config = Config.model_validate(
        {
            **CONFIG.model_dump(mode="json", exclude_none=True),
            "models": {"default": "gemini-3.8-flash", "google_api_key_env": "KEY"},
            "projects": {"group/app": project},
            "workflows": {"analyze-failures": {"prompt": "a.md", "data_sources": source}},
        }
    )
    settings = Settings(config, Path("config.yaml"), {"BOT": "bot-token", "KEY": "key", **environ})
    workflows = {n: Workflow(n, "Look into it.", entry, "0123456789abcdef") for n, entry in config.workflows.items()}
    return ConfiguredDoors(settings), resolve(run().spec, config, Workflows(workflows))


def tools(doors: ConfiguredDoors, order: Order) -> list[str]:
    registry = ToolRegistry(None)
    doors.sources(registry, order, time.sleep)
    return [tool.name for tool in registry.get_tool_defs()]


@pytest.mark.parametrize(
    ("source", "project"),
    [
        ({"token_env": "READ"}, {}),
        ({}, {"tokens": {"gitlab": "READ"}}),
        ({"token_env": "GONE"}, {"tokens": {"gitlab": "READ"}}),
    ],
)
def test_gitlab_is_read_with_the_project_s_own_token_or_the_source_s(
    source: dict[str, Any], project: dict[str, Any]
) -> None:
    doors, order = opened({"gitlab": source}, project=project, READ="read-token")
    doors.check(order)
    assert any("gitlab" in name or "merge_request" in name for name in tools(doors, order))


def test_without_a_read_token_the_run_is_refused_before_it_costs_anything() -> None:
    doors, order = opened({"gitlab": {}}, project={})
    with pytest.raises(Invalid, match="the one that writes notes is never used for reading"):
        doors.check(order)


def test_a_read_token_that_is_not_set_is_named() -> None:
    doors, order = opened({"gitlab": {"token_env": "READ"}}, project={})
    with pytest.raises(Invalid, match="the environment variable READ is not set"):
        doors.check(order)


def test_a_source_that_is_not_served_is_refused_and_named() -> None:
    doors, order = opened({"konflux": {}}, project={})
    with pytest.raises(Invalid, match=r"workflows\.analyze-failures\.data_sources: konflux is not served"):
        tools(doors, order)


def test_a_workflow_without_sources_reads_nothing() -> None:
    doors, order = opened({}, project={})
    doors.check(order)
    assert tools(doors, order) == []


def test_a_model_without_its_key_is_refused() -> None:
    doors, order = opened({}, project={}, KEY="")
    with pytest.raises(Invalid, match="the environment variable KEY is not set"):
        doors.check(order)


def test_a_model_that_nobody_knows_is_refused() -> None:
    doors, _ = opened({}, project={})
    with pytest.raises(Invalid, match="model"):
        doors.model("no-such-provider-1")


def test_prices_and_windows_are_known_for_the_default_model() -> None:
    doors, _ = opened({}, project={})
    assert doors.has_price("gemini-3.8-flash")
    assert doors.window("gemini-3.8-flash") > 100_000
    assert doors.worst_case("gemini-3.8-flash", input_tokens=1_000_000, max_output_tokens=8_192) > 0
