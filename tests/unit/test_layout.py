"""Conventions of the tree, as tests: they hold because somebody would otherwise forget them."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hummingbird_operator import workflows as workflow_files
from hummingbird_operator.settings import load

ROOT = Path(__file__).parents[2]
PACKAGES = ("operator/hummingbird_operator", "hummingbird_ai", "cluster", "demo")


def modules() -> Iterator[Path]:
    for package in PACKAGES:
        yield from (ROOT / package).rglob("*.py")


def test_operator_is_a_plain_folder_or_it_would_shadow_the_standard_library() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists()


def test_modules_stay_under_300_lines() -> None:
    long = {str(path.relative_to(ROOT)) for path in modules() if len(path.read_text().splitlines()) > 300}
    assert long == set()


def test_functions_stay_under_60_lines() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (node.end_lineno or 0) - node.lineno >= 60
    ]
    assert long == []


def test_nothing_is_called_utils_or_common() -> None:
    assert not [path for path in modules() if path.stem in ("utils", "common", "helpers", "misc")]


def test_every_workflow_parses_and_names_tools_that_exist(tmp_path: Path) -> None:
    known = known_tools(tmp_path)
    for prompt in (ROOT / "workflows").glob("*.md"):
        config = {
            "models": {"default": "gemini-3.8-flash"},
            "sessions": {"store": "file:///tmp/x"},
            "workflows": {prompt.stem: {"prompt": str(prompt)}},
        }
        path = tmp_path / "config.yaml"
        path.write_text(yaml.safe_dump(config))
        workflow_files.load(load(path, {})).get(prompt.stem)
        named = set(re.findall(r"`((?:gitlab|sandbox|fetch|konflux|tf)_[a-z_]+)`", prompt.read_text()))
        assert named
        assert named <= known, f"{prompt.name} names tools that do not exist: {named - known}"


def known_tools(folder: Path) -> set[str]:
    from hummingbird_operator.sessions.testing import FakeSandbox
    from hummingbird_operator.sessions.tools import ToolRegistry
    from hummingbird_operator.sources import gitlab

    registry = ToolRegistry(FakeSandbox(folder))
    gitlab.register(registry, url="https://gitlab.example.com", token="t", project="group/app")
    return {tool.name for tool in registry.get_tool_defs()}


@pytest.mark.parametrize("name", ["run", "dev", "servers", "uv"])
def test_pinned_requirements_have_hashes_and_no_registry_addresses(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    assert "--hash=sha256:" in text
    assert not re.search(r"https?://", text)
    assert "index-url" not in text


def test_the_image_and_the_package_agree_on_python() -> None:
    minimum = re.search(r'requires-python = ">=([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    image = re.search(r"python:([\d.]+)-slim", (ROOT / "Containerfile").read_text())
    assert minimum
    assert image
    assert minimum[1] == image[1]


def test_no_committed_file_names_a_folder_of_one_machine() -> None:
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    for file in files:
        text = (ROOT / file).read_text(errors="replace")
        for folder in (ROOT, Path.home()):
            assert not re.search(rf"(^|[\s\"'=:(]){re.escape(str(folder))}/", text, re.MULTILINE), file
