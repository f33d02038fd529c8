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
    assert all(line.startswith("hummingbird: ") for line in error.splitlines())
    assert said in error


def test_check_names_every_missing_secret_and_without_secrets_only_warns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = {"group/app": {"tokens": {"gitlab": "READ"}}}
    path = write(tmp_path, gitlab={"url": "https://gitlab.example.com", "token_env": "BOT"}, projects=project)
    assert main(["check", "--config", path]) == 2
    named = capsys.readouterr().err
    assert all(variable in named for variable in ("KEY", "BOT", "projects.group/app.tokens.gitlab"))
    assert main(["check", "--config", path, "--without-secrets"]) == 0
    assert capsys.readouterr().err.count("warning: ") == 3


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"sandbox": {"backend": "podman"}},
            "sandbox.backend: podman is not served by this version; use k8spool or k8s",
        ),
        (
            {"workflows": {"look": {"prompt": "look.md", "data_sources": {"konflux": {}}}}},
            "workflows.look.data_sources.konflux: is not served by this version; gitlab is",
        ),
    ],
)
def test_check_refuses_what_this_version_does_not_serve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, object], said: str
) -> None:
    assert main(["check", "--config", write(tmp_path, **changes), "--without-secrets"]) == 2
    assert said in capsys.readouterr().err
