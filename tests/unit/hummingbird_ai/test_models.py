from __future__ import annotations

import subprocess
import sys

import pytest

from hummingbird_ai import models
from hummingbird_ai.errors import BadRequest


def test_the_usage_example_of_the_library_runs_as_printed() -> None:
    model = models.build_model(
        "gemini-2.5-flash",
        google_api_key="",
        google_cloud_project="my-project",
        model_regions={"gemini-2.5-": "us-central1"},
    )

    assert model.name == "gemini-2.5-flash"
    assert "region='us-central1'" in repr(model)


@pytest.mark.parametrize(
    ("name", "region"),
    [
        ("gemini-3.8-flash", "global"),
        ("gemini-2.5-flash", "us-central1"),
        ("gemini-2.5-flash-lite", "eu"),
    ],
)
def test_the_longest_fitting_prefix_names_the_region(name: str, region: str) -> None:
    regions = {"gemini-2.5-": "us-central1", "gemini-2.5-flash-lite": "eu", "claude-": "us"}

    assert f"region={region!r}" in repr(models.build_model(name, google_cloud_project="p", model_regions=regions))


def test_a_key_chooses_the_gemini_api() -> None:
    assert "generativelanguage.googleapis.com" in repr(models.build_model("gemini-3.8-flash", google_api_key="k"))


def test_claude_is_refused_with_a_clear_word() -> None:
    with pytest.raises(BadRequest, match="Claude on Vertex AI is not in this version yet"):
        models.build_model("claude-opus-5-5", google_cloud_project="p")


@pytest.mark.parametrize("name", ["", "gpt-9", "gemini", "Gemini-3.8-flash"])
def test_a_name_of_nobody_is_refused(name: str) -> None:
    with pytest.raises(BadRequest, match="begins with `gemini-`"):
        models.build_model(name, google_api_key="k")


def test_web_search_is_refused_where_it_is_not_offered() -> None:
    with pytest.raises(BadRequest, match="web search"):
        models.build_model("gemini-3.8-flash", google_api_key="k", web_search=True)


def test_prices_are_checked_when_a_model_is_built() -> None:
    with pytest.raises(ValueError, match=r"gemini-99\.input"):
        models.build_model("gemini-3.8-flash", google_api_key="k", prices={"gemini-99": {"input": "x", "output": 1}})


def test_the_library_is_imported_without_the_operator_or_its_libraries() -> None:
    code = (
        "import sys, hummingbird_ai.models, hummingbird_ai.calls, hummingbird_ai.testing\n"
        "print(sorted({name.split('.')[0] for name in sys.modules} & "
        "{'hummingbird_operator', 'kopf', 'kubernetes', 'boto3', 'gitlab'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.strip() == "[]"
