"""The closed list of outcomes."""

from __future__ import annotations

import re

from hummingbird_operator.ingest.reasons import Reason


def test_every_reason_has_one_name_and_one_sentence() -> None:
    for reason in Reason:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", reason.value)
        assert re.fullmatch(r"[A-Z].*\.", reason.sentence)
    assert len({reason.sentence for reason in Reason}) == len(Reason)
    assert f"{Reason.FIRED}" == "fired"
