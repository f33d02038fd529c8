"""The pages for people say what the code says."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path

import pytest

from hummingbird_operator.api import conditions as c
from hummingbird_operator.api.agentrun import AgentRunSpec, AgentRunStatus, Phase
from hummingbird_operator.api.fields import Model

DOCS = Path(__file__).parents[3] / "docs"

SECTIONS: dict[str, type[StrEnum]] = {
    "Types of an AgentRun": c.RunCondition,
    "Reasons of the checkpoints": c.Checkpoint,
    "Succeeded is Unknown: the run works": c.Working,
    "Succeeded is True: the run ended well": c.Success,
    "Succeeded is False: the run failed": c.Failure,
    "Types of a SandboxPool": c.PoolCondition,
    "Reasons of a SandboxPool": c.PoolReason,
}


def rows(page: str, section: str) -> list[list[str]]:
    text = (DOCS / page).read_text(encoding="utf-8").split(f"## {section}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize("section", SECTIONS)
def test_every_type_and_reason_has_its_sentence(section: str) -> None:
    found = rows("conditions.md", section)
    assert [row[0] for row in found] == [str(one) for one in SECTIONS[section]]
    assert all(cell.endswith(".") for row in found for cell in row[1:])


def test_no_enumeration_of_conditions_is_missing_from_the_page() -> None:
    enums = {
        one for one in vars(c).values() if isinstance(one, type) and issubclass(one, StrEnum) and one is not StrEnum
    }
    assert enums == set(SECTIONS.values())


@pytest.mark.parametrize(("section", "model"), [("Spec", AgentRunSpec), ("Status", AgentRunStatus)])
def test_every_field_of_a_run_is_on_its_page(section: str, model: type[Model]) -> None:
    told = [name for row in rows("agentruns.md", section) for name in re.findall(r"`(\w+)`", row[0])]
    assert sorted(told) == sorted(field.alias or name for name, field in model.model_fields.items())


def test_every_phase_is_on_the_page() -> None:
    assert {row[0] for row in rows("agentruns.md", "Phase")} == set(Phase)
