"""What docs/operations.md searches the logs for stands in the lines that our processes write."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path

import pytest

from hummingbird_operator.telemetry import RUN, JsonFormatter
from tests.unit.ingest.desk import Desk
from tests.unit.ingest.samples import note
from tests.unit.ingest.scripted import Scene, body, play

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
PATTERNS = re.findall(r"kubectl logs [^\n|]*\| grep (?:-E )?'([^']*)'", PAGE)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """A run's line, a comment's, and those of a message that nobody can read and of one that fails by itself."""
    caplog.set_level(logging.INFO)
    asyncio.run(_a_comment())
    play(_poison, most_receives=2)
    token = RUN.set("NAME")
    logging.getLogger("operator").info("a turn")
    written = [JsonFormatter(list).format(caplog.records[-1])]
    RUN.reset(token)
    return written + [JsonFormatter(list).format(record) for record in caplog.records[:-1]]


async def _a_comment() -> None:
    await Desk().see(note("a remark", id=1234))


async def _poison(it: Scene) -> None:
    it.queue.put("no JSON")
    it.queue.put(body("faulty"))
    it.script.steps["faulty"] = [RuntimeError("a fault of ours")] * 2
    it.start()
    await asyncio.sleep(500)
    await it.end()


def test_it_searches_for_a_run_a_comment_and_poison() -> None:
    assert len(PATTERNS) == 3


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_line_that_is_searched_for_is_written(pattern: str, lines: list[str]) -> None:
    alternatives = pattern.split("|")
    assert [each for each in alternatives if not any(each in line for line in lines)] == []
