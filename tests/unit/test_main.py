"""The command line: `check` says whether a configuration is right, and a fault is one sentence and status 2."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from hummingbird_operator.__main__ import main
from tests.standins.gitlab import GitLabStandIn

GITLAB = {"url": "https://gitlab.example.com", "token_env": "BOT"}


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
        ({"gitlab": GITLAB, "projects": {"group/app": {}}}, "gitlab.token_env: the environment"),
        ({"models": {"default": "gpt-9"}}, "hummingbird: models.default: 'gpt-9' is not a model"),
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
        ({"sandbox": {"backend": "k8s"}}, "sandbox.image: name the image of the backend k8s, which workflow look uses"),
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


def test_a_key_that_was_pasted_in_place_of_another_value_is_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, models={"default": "AIzaZz9Zz9Zz9Zz9"})
    assert main(["check", "--config", path]) == 2
    assert capsys.readouterr().err.startswith("hummingbird: models.default: '(value not shown)' is not a model")


def test_a_warning_lets_a_check_pass_unless_it_is_strict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    look = {"prompt": "look.md", "action": "pipeline", "trigger_rules": [{"action": "deny", "fork": True}]}
    check = ["check", "--config", write(tmp_path, workflows={"look": look}), "--without-secrets"]
    assert main(check) == 0
    assert "warning: workflows.look.trigger_rules: no rule allows anything" in capsys.readouterr().err
    assert main([*check, "--strict"]) == 2
    assert main(["check", "--config", write(tmp_path), "--without-secrets", "--strict"]) == 0, (
        "absent secrets are asked"
    )


def test_a_check_for_one_process_needs_the_secrets_of_that_one_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gitlab = {"url": "https://gitlab.example.com", "token_env": "BOT", "webhook_secret_env": ["HOOK"]}
    check = ["check", "--config", write(tmp_path, gitlab=gitlab, projects={"group/app": {}}), "--for"]
    monkeypatch.setenv("BOT", "bot-token")
    assert main([*check, "ingest-sqs"]) == 2
    assert "ingest.queue_url: name the SQS queue" in capsys.readouterr().err
    assert main([*check, "ingest-webhook"]) == 2
    assert capsys.readouterr().err.count("hummingbird: ") == 1, "the secret of the webhook"
    monkeypatch.setenv("HOOK", "whsec_%%%")
    assert main([*check, "ingest-webhook"]) == 2
    assert "is no signing token" in capsys.readouterr().err
    monkeypatch.setenv("HOOK", "token")
    assert main([*check, "ingest-webhook"]) == 0
    assert main([*check, "operator"]) == 2
    assert "KEY" in capsys.readouterr().err


def test_the_operator_does_not_start_with_sandboxes_among_its_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "secret-key")
    path = write(tmp_path, sandbox={"namespace": "shared"})
    assert main(["operator", "--config", path, "--namespace", "shared"]) == 2
    assert "sandbox.namespace: shared is the namespace of the runs" in capsys.readouterr().err


def test_the_help_tells_the_exit_statuses(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "exit status: 0 all is well" in capsys.readouterr().out


HOOK_URL = "https://hummingbird.example.com/webhooks/gitlab"


def for_hooks(folder: Path, url: str) -> str:
    gitlab = {"url": url, "token_env": "BOT", "hooks_token_env": "HOOKS", "webhook_secret_env": ["SECRET"]}
    return write(folder, gitlab=gitlab, projects={"group/app": {}}, ingest={"webhook_url": HOOK_URL})


def test_webhook_setup_says_a_line_for_each_project_and_a_check_ends_with_one_where_something_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"HOOKS": "maintainer-token", "SECRET": "secret-token"}.items():
        monkeypatch.setenv(name, value)
    with GitLabStandIn() as gitlab:
        path = for_hooks(tmp_path, gitlab.url)
        assert main(["webhook-setup", "--config", path, "--check"]) == 1
        assert capsys.readouterr().out == f"group/app: has no hook for {HOOK_URL}\n"
        assert main(["webhook-setup", "--config", path]) == 0
        assert "was made, with its secret" in capsys.readouterr().out
        monkeypatch.delenv("SECRET")
        assert main(["webhook-setup", "--config", path, "--check", "--project", "group/app"]) == 0, "needs no secret"
        capsys.readouterr()
        assert main(["webhook-setup", "--config", path]) == 2
        assert "gitlab.webhook_secret_env: the environment variable SECRET is not set" in capsys.readouterr().err


@pytest.mark.parametrize("transport", ["sqs", "webhook"])
def test_an_ingestor_that_lacks_something_says_so_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], transport: str
) -> None:
    assert main(["ingest", transport, "--config", write(tmp_path), "--health-port", "0"]) == 2
    assert "hummingbird: gitlab: an ingestor needs a GitLab" in capsys.readouterr().err
