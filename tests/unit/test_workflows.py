"""A workflow is its prompt, verbatim, and its entry; a prompt that cannot be used is named with key and file."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from hummingbird_operator import settings, workflows
from hummingbird_operator.errors import Invalid, NotFound


def loaded(folder: Path, prompt: bytes | None, **entry: object) -> workflows.Workflows:
    if prompt is not None:
        (folder / "look.md").write_bytes(prompt)
    config = {
        "models": {"default": "gemini-3.8-flash"},
        "sessions": {"store": "file:///tmp/x"},
        "workflows": {"look": {"prompt": "look.md", **entry}},
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    return workflows.load(settings.load(path, {}))


def test_the_prompt_is_used_verbatim(tmp_path: Path) -> None:
    assert loaded(tmp_path, b"# Look\n\n  well \n").get("look").prompt == "# Look\n\n  well \n"


def test_the_hash_changes_with_what_shapes_the_conversation_and_with_nothing_else(tmp_path: Path) -> None:
    first = loaded(tmp_path, b"Look.").get("look").hash
    assert loaded(tmp_path, b"Look.", description="other words").get("look").hash == first
    assert loaded(tmp_path, b"Look!").get("look").hash != first
    assert loaded(tmp_path, b"Look.", data_sources={"gitlab": {}}).get("look").hash != first


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        (None, "No such file"),
        (b" \n", "is empty"),
        (b"\xff\xfe", "is not UTF-8"),
        (b"x" * (workflows.MAX_PROMPT_BYTES + 1), "is larger than"),
    ],
    ids=["missing", "empty", "binary", "huge"],
)
def test_a_prompt_that_cannot_be_used_names_key_and_file(tmp_path: Path, prompt: bytes | None, said: str) -> None:
    with pytest.raises(Invalid, match=said) as caught:
        loaded(tmp_path, prompt)
    assert str(caught.value).startswith("workflows.look.prompt: ")
    assert "look.md" in str(caught.value)


def test_an_unknown_workflow_names_those_that_exist(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no workflow 'peek'; the configuration has: look"):
        loaded(tmp_path, b"Look.").get("peek")


def test_a_workflow_is_for_the_projects_of_its_globs(tmp_path: Path) -> None:
    workflow = loaded(tmp_path, b"Look.", projects=["group/*", "other/app"]).get("look")
    assert workflow.admits("group/app")
    assert workflow.admits("other/app")
    assert not workflow.admits("other/lib")
