"""The log line of an event: by it a person's comment is found again, and nothing that somebody wrote gets in."""

from __future__ import annotations

import io
import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hummingbird_operator.ingest.event import Event
from hummingbird_operator.ingest.telling import LONGEST, subject
from hummingbird_operator.telemetry import JsonFormatter
from tests.unit.ingest.desk import Desk
from tests.unit.ingest.samples import note


async def test_a_comment_s_line_names_place_number_person_and_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    await Desk().see(note("a remark"))
    (record,) = [each for each in caplog.records if each.name.endswith("telling")]
    assert record.getMessage() == "group/app!42 note 1244 by alice: not_for_us"
    line = json.loads(JsonFormatter(list).format(record))
    expected = {"project": "group/app", "merge_request": "42", "note": "1244", "author": "alice", "event": "note"}
    assert {**line, **expected, "reason": "not_for_us", "runs": []} == line


async def test_a_run_that_was_made_is_named(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    desk = Desk()
    await desk.see(note("/hummingbird review"))
    (name,) = desk.runs
    assert f"fired → {name}" in caplog.text


async def test_a_bad_payload_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    await Desk().see({"object_kind": "note", "object_attributes": 5})
    assert "bad_payload" in caplog.text


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.dictionaries(
            st.sampled_from(
                [
                    "object_kind",
                    "project",
                    "path_with_namespace",
                    "user",
                    "username",
                    "object_attributes",
                    "id",
                    "iid",
                    "merge_request",
                ]
            ),
            inner,
            max_size=4,
        ),
        max_leaves=12,
    )
)
def test_whatever_an_event_says_its_line_is_short_and_one_line(value: object) -> None:
    payload = value if isinstance(value, dict) else {"object_kind": value}
    for shown in subject(Event("gitlab", "", payload, "x" * 1000)).values():
        assert len(shown) <= LONGEST
        assert shown.isascii()
        assert shown.isprintable()


def test_the_formatter_keeps_the_fields_of_other_lines_as_they_were() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter(list))
    log = logging.Logger("x")
    log.addHandler(handler)
    log.warning("hello", extra={"run": "why"})
    assert {"run": "why", "message": "hello"}.items() <= json.loads(stream.getvalue()).items()
