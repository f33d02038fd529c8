from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from hummingbird_ai import models
from hummingbird_ai.errors import BadRequest
from hummingbird_ai.testing import ClaudeServer, say


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


def test_claude_is_called_on_vertex_also_where_there_is_a_key_for_gemini() -> None:
    model = models.build_model("claude-opus-5-5", google_api_key="k", google_cloud_project="p")

    assert repr(model) == (
        "AnthropicVertexModel('claude-opus-5-5', VertexEndpoint('https://aiplatform.googleapis.com', region='global'))"
    )


def test_a_claude_that_is_known_by_its_release_only_says_so() -> None:
    with pytest.raises(BadRequest, match="as in claude-haiku-4-5@20251001"):
        models.build_model("claude-haiku-4-5", google_cloud_project="p")
    assert models.build_model("claude-haiku-4-5@20251001").name == "claude-haiku-4-5@20251001"


@pytest.mark.parametrize("name", ["", "gpt-9", "gemini", "Gemini-3.8-flash"])
def test_a_name_of_nobody_is_refused(name: str) -> None:
    with pytest.raises(BadRequest, match="begins with `gemini-` or `claude-`"):
        models.build_model(name, google_api_key="k")


@pytest.mark.parametrize("name", ["gemini-3.8-flash", "claude-opus-5-5"])
def test_both_families_search_the_web_where_that_is_asked_for(name: str) -> None:
    """What goes out is tested with each adapter."""
    assert models.build_model(name, google_api_key="k", web_search=True).name == name


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


def test_none_from_an_unset_variable_is_told_or_taken_for_no_key() -> None:
    nothing: Any = None
    with pytest.raises(BadRequest, match="None is not a model"):
        models.build_model(nothing)
    assert "VertexEndpoint" in repr(models.build_model("gemini-3.8-flash", google_api_key=nothing))


@pytest.mark.parametrize("region", ["", "mars", "EU", "us central1", "us-central1/x"])
def test_a_region_that_is_none_is_told_before_it_becomes_a_host(region: str) -> None:
    with pytest.raises(BadRequest, match="must be `global`, `us`, `eu` or one such as `us-central1`"):
        models.build_model("claude-opus-5-5", model_regions={"claude-": region}, base_url="http://127.0.0.1:1")


def test_regions_that_are_no_mapping_are_told() -> None:
    wrong: Any = "eu"
    with pytest.raises(BadRequest, match="maps the beginnings of names to regions"):
        models.build_model("claude-opus-5-5", model_regions=wrong)


def test_many_adapters_of_one_auth_share_its_token() -> None:
    class Counted:
        valid, token, refreshed = False, "", 0

        def refresh(self, request: object) -> None:
            self.valid, self.token, self.refreshed = True, "test-token", self.refreshed + 1

    credentials = Counted()
    auth = models.VertexAuth("p", credentials=credentials)
    with ClaudeServer(lambda body, n: say("hi")) as server:
        for _ in range(3):
            model = models.build_model("claude-opus-5-5", auth=auth, base_url=server.url)
            model.generate([model.make_user_content("go")], system="", tools=[])
    assert credentials.refreshed == 1
