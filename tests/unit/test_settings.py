"""The configuration: what is accepted, and what a person reads when something is wrong."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
import yaml

from hummingbird_operator.agentruns.resolve import SUPPORTED
from hummingbird_operator.config import SERVED_BACKENDS, Project
from hummingbird_operator.errors import Invalid
from hummingbird_operator.settings import Settings, load

MINIMAL = """
models: {default: gemini-3.8-flash}
sessions: {store: "file:///var/lib/hummingbird"}
workflows: {analyze-failures: {prompt: workflows/analyze-failures.md}}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(text)
    return path


def test_the_smallest_file_gets_the_documented_defaults(tmp_path: Path) -> None:
    config = load(write(tmp_path, MINIMAL), {}).config
    assert config.limits.max_cost_usd == Decimal("2.00")
    assert config.limits.context_tokens == 60_000
    assert config.sandbox.backend == "k8spool"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("limits: {max_iteratons: 3}", "limits.max_iteratons: is not a field; did you mean max_iterations?"),
        ("limits: {max_iterations: 0}", "limits.max_iterations: must be more than 0, not 0"),
        ("limits: {max_cost_usd: cheap}", 'limits.max_cost_usd: must be a decimal number, not "cheap"'),
        (
            "gitlab: {url: gitlab.example.com, token_env: T}",
            "gitlab.url: must be an address such as https://gitlab.example.com; it is",
        ),
        ("gitlab: {url: https://gitlab.example.com}", "gitlab: give exactly one of token_env and token_file"),
        ("sandbox: {backend: docker}", 'sandbox.backend: must be one of k8spool, k8s; it is "docker"'),
        (
            "ingest: {queue_url: 'arn:aws:sqs:eu-central-1:1:q'}",
            "ingest.queue_url: must be an address such as https://sqs.",
        ),
        ("limits: {run_timeout_seconds: 30m}", 'run_timeout_seconds: must be a whole number of seconds, not "30m"'),
        ("limits: {max_attempts: 1.5}", "limits.max_attempts: must be a whole number, not 1.5"),
        ("limits: {max_cost_usd: 1.23456}", "limits.max_cost_usd: must have at most 4 decimal places; it is 1.23456"),
        ("models: {default: m, prices: {gemini-9: {input: '1'}}}", "models.prices.gemini-9: a price has input"),
        ("workflows: {look: {prompt: look.txt}}", "workflows.look.prompt: must be a Markdown file such as"),
        ("workflows: {Look: {prompt: look.md}}", "workflows.Look: must be a name such as review"),
        ("sessions: {store: /var/lib}", "sessions.store: must be such as s3://bucket/prefix or file:///path; it is"),
        (
            "workflows: {look: {prompt: l.md, trigger_rules: [{action: deny, user: '@renovate'}]}}",
            "workflows.look.trigger_rules[0].user: must be a user name without @, which no name has: renovate",
        ),
        (
            "projects: {'*': {}, 'platform/*': {internal_notes: true}}",
            "projects.platform/*: internal_notes would be lost and notes would be public, for * stands before it and",
        ),
        (
            "projects: {group/app: {internal: true}}",
            "projects.group/app.internal: is not a field; did you mean internal_notes?",
        ),
        (
            "gitlab: {url: https://gitlab.example.com/api/v4, token_env: T}",
            "give that of GitLab itself: https://gitlab.",
        ),
        ("ingest: {webhook_url: https://h.example.com/}", "ingest.webhook_url: must end with /webhooks/gitlab"),
        ("projects: {https://gitlab.example.com/g/a: {}}", "projects.https://gitlab.example.com/g/a: must be a path"),
        ("nonsense: 1", "nonsense: is not a field; the fields here are gitlab, models"),
    ],
)
def test_a_fault_is_named_with_file_and_key(tmp_path: Path, change: str, said: str) -> None:
    whole = yaml.safe_load(MINIMAL) | yaml.safe_load(change)
    path = write(tmp_path, yaml.safe_dump(whole))
    with pytest.raises(Invalid) as caught:
        load(path, {})
    assert str(caught.value).startswith(f"{path}: ")
    assert said in str(caught.value)


NOT_A_NAME = "must be the NAME of an environment variable, not the secret itself (value not shown)"
GITLAB = "gitlab: {url: https://gitlab.example.com, "


@pytest.mark.parametrize(
    "pasted", ["glpat-Zz9Zz9Zz9Zz9", "whsec_Zz9Zz9", "AIzaZz9Zz9", "ghp_Zz9", "sk-Zz9Zz9Zz9Zz9", "Zz9" * 8]
)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GITLAB + "token_env: PASTED}", f"gitlab.token_env: {NOT_A_NAME}"),
        (GITLAB + "token_env: T, hooks_token_env: PASTED}", f"gitlab.hooks_token_env: {NOT_A_NAME}"),
        (GITLAB + "token_env: T, webhook_secret_env: [OLD, PASTED]}", f"gitlab.webhook_secret_env[1]: {NOT_A_NAME}"),
        (GITLAB + "token_env: T, webhook_secret_env: PASTED}", "gitlab.webhook_secret_env: must be a list"),
        (GITLAB + "token_env: [PASTED]}", f"gitlab.token_env: {NOT_A_NAME}"),
        (GITLAB + "token_file: PASTED}", "gitlab.token_file: must be the PATH of a file, not the secret itself"),
        (GITLAB + "token: PASTED}", "gitlab.token: is not a field"),
        (GITLAB + "PASTED: T}", "gitlab.…: is not a field"),
        ("projects: {g/a: {tokens: {gitlab: PASTED}}}", f"projects.g/a.tokens.gitlab: {NOT_A_NAME}"),
        ("projects: {g/a: {tokens: PASTED}}", "projects.g/a.tokens: must be an object, not (value not shown)"),
        ("projects: {g/a: PASTED}", "projects.g/a: must be an object, not (value not shown)"),
        ("projects: {g/a: {tokens: {gitlab: PASTED: x}}}", "is not YAML: line 5, column"),
    ],
)
def test_a_secret_pasted_in_place_of_a_name_is_refused_and_never_shown(
    tmp_path: Path, pasted: str, text: str, said: str
) -> None:
    with pytest.raises(Invalid) as caught:
        load(write(tmp_path, MINIMAL + text.replace("PASTED", pasted)), {})
    assert said in str(caught.value)
    assert pasted not in str(caught.value)


@pytest.mark.parametrize(
    "gitlab",
    [
        "token_env: GITLAB_TOKEN_2, hooks_token_file: /run/secrets/task-runner/whsec_current",
        "token_env: analyzefailuresrhel9token, allowed_bots: [risk-analysis-assistant, glue-something]",
    ],
)
def test_a_name_that_only_resembles_a_secret_is_taken(tmp_path: Path, gitlab: str) -> None:
    load(write(tmp_path, MINIMAL + GITLAB + gitlab + "}"), {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GITLAB + "token_env: T, webhook_secret_env: HOOK}", "gitlab.webhook_secret_env: must be a list: [HOOK]"),
        (GITLAB + "token_env: T, allowed_bots: renovate}", "gitlab.allowed_bots: must be a list: [renovate]"),
        ("ingest: {topic_arns: 'arn:x'}", "ingest.topic_arns: must be a list: [arn:x]"),
        ("projects: {g/a: {internal_notes: 'yes'}}", 'projects.g/a.internal_notes: must be true or false, not "yes"'),
        ("projects: {g/a: {tokens: {jira: J}}}", "projects.g/a.tokens.jira: must be one of gitlab"),
        (
            "projects: {g/a: {tokens: READ}}",
            "projects.g/a.tokens: must be an object, not (value not shown); such as {gi",
        ),
        ("projects: {g/a: }", "projects.g/a: must be an object, not null; write {} where there is nothing to say"),
        (
            "x: [\n  *y",
            "is not YAML: line 6, column 3: found undefined alias 'y'; a text that begins with * must stand",
        ),
        ("projects: {*/app: {}}", "a text that begins with * must stand in quotes"),
    ],
)
def test_a_value_of_the_wrong_kind_is_told_how_it_would_be_right(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(Invalid) as caught:
        load(write(tmp_path, MINIMAL + text), {})
    assert said in str(caught.value)
    assert "unicode string" not in str(caught.value)


def test_a_data_source_never_gets_the_token_that_writes_notes(tmp_path: Path) -> None:
    text = (
        MINIMAL + "gitlab: {url: https://gitlab.example.com, token_env: BOT}\nprojects: {g/a: {tokens: {gitlab: BOT}}}"
    )
    with pytest.raises(Invalid, match=r"projects\.g/a\.tokens\.gitlab: BOT is the token that writes notes"):
        load(write(tmp_path, text), {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "is not YAML"),
        ("models: {default: x}\nmodels: {default: y}", "the key models stands twice, in lines 1 and 2"),
        ("- a", "must be a YAML mapping"),
        ("", "must be a YAML mapping"),
    ],
)
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(Invalid, match=said):
        load(write(tmp_path, text), {})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"absent\.yaml: cannot read the configuration: No such file"):
        load(tmp_path / "absent.yaml", {})


def test_a_missing_secret_names_the_variable_and_the_key(tmp_path: Path) -> None:
    settings = load(write(tmp_path, MINIMAL), {"EMPTY": " "})
    with pytest.raises(Invalid, match=r"gitlab\.token_env: the environment variable EMPTY is not set or empty"):
        settings.secret("gitlab.token_env", env="EMPTY")


def test_what_is_wrong_with_a_file_is_told_with_the_file_s_own_key(tmp_path: Path) -> None:
    settings = load(write(tmp_path, MINIMAL), {})
    with pytest.raises(Invalid, match=r"^gitlab\.token_file: cannot read .*absent: No such file"):
        settings.secret("gitlab.token_env", env=None, file=tmp_path / "absent")


def test_a_narrower_glob_before_a_wider_one_keeps_its_own_settings(tmp_path: Path) -> None:
    text = MINIMAL + "projects: {'group/open-*': {}, 'group/*': {internal_notes: true}, '*': {}}"
    config = load(write(tmp_path, text), {}).config
    found = [config.project(path) for path in ("group/open-source", "group/app", "other/app")]
    assert [one.internal_notes for one in found if one] == [False, True, False]


def test_the_kinds_of_sandbox_that_a_wrong_one_is_told_are_those_that_are_served() -> None:
    assert set(SERVED_BACKENDS) == set(SUPPORTED)


def test_a_secret_file_is_read_at_each_use_so_that_a_rotation_needs_no_restart(tmp_path: Path) -> None:
    settings, token = load(write(tmp_path, MINIMAL), {}), tmp_path / "token"
    token.write_text("first\n")
    assert settings.secret("gitlab.token_file", env=None, file=token) == "first"
    token.write_text("second\n")
    assert settings.secret("gitlab.token_file", env=None, file=token) == "second"
    token.write_text("")
    with pytest.raises(Invalid, match="is empty"):
        settings.secret("gitlab.token_file", env=None, file=token)


def test_the_environment_is_not_shown_in_a_repr(tmp_path: Path) -> None:
    assert "s3cret" not in repr(load(write(tmp_path, MINIMAL), {"TOKEN": "s3cret"}))


def test_a_project_is_found_by_its_path_before_any_glob(tmp_path: Path) -> None:
    text = MINIMAL + "projects: {'group/*': {internal_notes: true}, group/app: {}}"
    config = load(write(tmp_path, text), {}).config
    assert config.project("group/app") == Project()
    assert config.project("group/other") == Project(internal_notes=True)
    assert config.project("elsewhere/app") is None


def rotating(tmp_path: Path) -> tuple[Settings, Path, Path]:
    new, old = tmp_path / "new", tmp_path / "old"
    new.write_text("new-secret")
    old.write_text("old-secret")
    text = f"gitlab: {{url: https://gitlab.example.com, token_env: BOT, webhook_secret_file: [{new}, {old}]}}\n"
    return load(write(tmp_path, MINIMAL + text), {}), new, old


def test_one_webhook_secret_that_cannot_be_read_keeps_nobody_out_who_knows_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings, new, old = rotating(tmp_path)
    assert settings.webhook_secrets() == ("new-secret", "old-secret")
    for break_it in (old.unlink, lambda: old.write_bytes(b"\xff\xfe"), lambda: old.write_text("")):
        break_it()
        assert settings.webhook_secrets() == settings.webhook_secrets() == ("new-secret",)
        assert settings.new_webhook_secret() == "new-secret"
    assert [caplog.text.count(words) for words in ("cannot read", "is not UTF-8", "is empty")] == [1, 1, 1]
    new.unlink()
    with pytest.raises(Invalid, match=r"gitlab\.webhook_secret_file: cannot read .*/new"):
        settings.webhook_secrets()


def test_a_hook_is_never_given_the_old_secret_because_the_new_one_is_missing(tmp_path: Path) -> None:
    settings, new, _ = rotating(tmp_path)
    new.unlink()
    assert settings.webhook_secrets() == ("old-secret",)
    with pytest.raises(Invalid, match="cannot read"):
        settings.new_webhook_secret()
