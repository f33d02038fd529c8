"""The command line: `check` says whether a configuration is right, and a fault is one sentence and status 2."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from hummingbird_operator.__main__ import main


def write(folder: Path, **changes: object) -> str:
    (folder / "look.md").write_text("Look.")
    config = {
        "models": {"default": "gemini-3.8-flash", "google_api_key_env": "KEY"},
        "sessions": {"store": f"file://{folder}/store"},
        "workflows": {"look": {"prompt": "look.md"}},
        **changes,
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    return str(path)


def test_check_accepts_a_right_configuration_and_names_its_workflows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "secret-key")
    assert main(["check", "--config", write(tmp_path)]) == 0
    assert capsys.readouterr().out.endswith("ok, workflows: look\n")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "models.google_api_key_env: the environment variable KEY is not set or empty"),
        ({"gitlab": {"url": "https://gitlab.example.com", "token_env": "BOT"}}, "gitlab.token_env: the environment"),
        ({"models": {"default": "gpt-9"}}, "model"),
        ({"workflows": {"help": {"prompt": "look.md"}}}, "workflows.help: the name is taken by the help command"),
    ],
)
def test_a_fault_is_one_sentence_on_stderr_and_status_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, object], said: str
) -> None:
    assert main(["check", "--config", write(tmp_path, **changes)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("hummingbird: ")
    assert error.count("\n") == 1
    assert said in error
