"""What is a command, and which workflow it means."""

from __future__ import annotations

import pytest

from hummingbird_operator.ingest.commands import Command, choose, parse

NAMES = ("analyze-failures", "analyze-flakes", "review", "re")


@pytest.mark.parametrize(
    ("text", "word", "message"),
    [
        ("/hummingbird review", "review", ""),
        ("/hummingbird", "help", ""),
        ("/hummingbird   ", "help", ""),
        ("/hummingbird help me", "help", "me"),
        ("/hummingbird\treview\tarm64 only", "review", "arm64 only"),
        ("\n  \n/hummingbird review", "review", ""),
        (
            "/hummingbird review why?\r\n\r\nSee the log:\r\n\r\n    boom\r\n",
            "review",
            "why?\n\nSee the log:\n\n    boom",
        ),
        ("/hummingbird review\rmac line", "review", "mac line"),
        ("/hummingbird review\n/hummingbird other", "review", "/hummingbird other"),
        ("/hummingbird review\n```\n/merge\n```", "review", "```\n/merge\n```"),
    ],
)
def test_a_command_is_the_first_line_that_is_not_blank(text: str, word: str, message: str) -> None:
    assert parse(text) == Command(word, message)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  \n \r\n",
        "please /hummingbird review",
        "Hello\n/hummingbird review",
        " /hummingbird review",
        "\t/hummingbird review",
        "> /hummingbird review",
        "```\n/hummingbird review\n```",
        "~~~\n/hummingbird review\n~~~",
        "`/hummingbird review`",
        "- /hummingbird review",
        "<!--\n/hummingbird review\n-->",
        "/hummingbirds review",
        "/hummingbird-review",
        "/hummingbird/review",
        "/Hummingbird review",
        "/HUMMINGBIRD review",
        "//hummingbird review",
        "\u200b/hummingbird review",
    ],
)
def test_nothing_else_is_a_command(text: str) -> None:
    """sources.md §6 row 9: no substring, no quote, no fence, no indent."""
    assert parse(text) is None


@pytest.mark.parametrize(
    ("word", "chosen"),
    [
        ("review", "review"),
        ("re", "re"),
        ("rev", "review"),
        ("analyze-fl", "analyze-flakes"),
        ("analyze", None),
        ("Review", None),
        ("reviews", None),
        ("x", None),
    ],
)
def test_a_name_wins_over_a_prefix_and_a_prefix_must_fit_one(word: str, chosen: str | None) -> None:
    assert choose(word, NAMES) == chosen


def test_no_workflow_is_chosen_from_none() -> None:
    assert choose("review", ()) is None
