"""`webhook-setup`: a line for each project, on the GitLab stand-in; twice is once, and a check writes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from hummingbird_operator.config import Config
from hummingbird_operator.errors import Invalid
from hummingbird_operator.ingest.hooks.hooks import WANTED, Hook, Hooks
from hummingbird_operator.ingest.hooks.setup import Setup, chosen, differences, hook_url
from hummingbird_operator.settings import Settings
from tests.standins.gitlab import GitLabStandIn
from tests.unit.ingest.hooks.test_hooks import APP, NOWHERE, gitlab
from tests.unit.ingest.webhook.test_signatures import SIGNING

TOKEN = "secret-token"


def lines(hooks: Hooks, *projects: str, secret: str = TOKEN, check: bool = False) -> list[tuple[bool, str]]:
    setup = Setup(hooks, NOWHERE, secret, check)
    return [(line.right, str(line)) for line in setup.each(projects or (APP,))]


def writes(standin: GitLabStandIn) -> list[str]:
    return [call.method for call in standin.calls if call.method != "GET"]


def the_hook(standin: GitLabStandIn) -> tuple[str, str]:
    """Its two secrets, which only the stand-in can tell."""
    project = standin.state.project(APP)
    assert project is not None
    (hook,) = project.hooks.values()
    return hook.token, hook.signing_token


def test_a_check_says_what_is_missing_and_writes_nothing_and_a_setup_makes_it() -> None:
    with gitlab() as (standin, hooks):
        assert lines(hooks, check=True) == [(False, f"group/app: has no hook for {NOWHERE}")]
        assert writes(standin) == []
        ((right, text),) = lines(hooks)
        assert right
        assert "was made, with its secret" in text
        assert the_hook(standin) == (TOKEN, "")
        ((right, text),) = lines(hooks, check=True)
        assert right
        assert "which secret it has cannot be read" in text


def test_a_second_setup_makes_no_second_hook_and_sets_the_new_secret() -> None:
    with gitlab() as (standin, hooks):
        lines(hooks)
        ((right, text),) = lines(hooks, secret=SIGNING)
        assert right
        assert text.endswith("was right; its secret was set")
        assert the_hook(standin) == (TOKEN, SIGNING)
        assert writes(standin) == ["POST", "PUT"]


def test_what_differs_is_named_and_only_that_is_mended() -> None:
    with gitlab() as (standin, hooks):
        made = hooks.create(APP, NOWHERE, {**WANTED, "push_events": True, "confidential_note_events": False})
        ((right, text),) = lines(hooks, check=True)
        assert not right
        assert (
            "confidential_note_events is off, must be on; push_events is on, must be off; has no secret token" in text
        )
        ((right, text),) = lines(hooks)
        assert right
        assert text.startswith(f"group/app: hook {made.id} mended: ")
        sent = next(call.body for call in standin.calls if call.method == "PUT")
        assert "confidential_note_events" in sent
        assert "pipeline_events" not in sent


@pytest.mark.parametrize(
    ("present", "said"), [(False, "has no signing token"), (None, "GitLab does not say that it has a signing token")]
)
@pytest.mark.parametrize("check", [False, True])
def test_a_signing_token_that_an_older_gitlab_ignores_is_said(present: bool | None, said: str, check: bool) -> None:
    old = Hook(id=1, url=NOWHERE, signing_token_present=present)

    class Old:
        def hooks(self, project: str) -> list[Hook]:
            return [old]

        def create(self, project: str, url: str, fields: object) -> Hook:
            return old

        def update(self, project: str, hook: Hook, fields: object) -> Hook:
            return old

        def enable(self, project: str, hook: Hook) -> None:
            raise AssertionError("it is not disabled")

    line = Setup(Old(), NOWHERE, SIGNING, check).one(APP)
    assert not line.right
    assert said in line.text
    assert "is right" not in line.text


def test_two_hooks_of_one_address_are_named_since_each_event_comes_twice() -> None:
    with gitlab() as (_, hooks):
        first, second = (hooks.create(APP, NOWHERE, {**WANTED, "token": TOKEN}) for _ in range(2))
        for check in (True, False):
            ((right, text),) = lines(hooks, check=check)
            assert not right
            assert f"hook {first.id} " in text
            assert f"{second.id} has the same address and sends each event again: delete it" in text


def test_a_disabled_hook_is_said_and_a_project_that_refuses_does_not_stop_the_others() -> None:
    with gitlab() as (standin, hooks):
        made = hooks.create(APP, NOWHERE, {**WANTED, "token": TOKEN})
        project = standin.state.project(APP)
        assert project is not None
        project.hooks[made.id].recent_failures = 40
        found = lines(hooks, "group/none", APP, check=True)
        assert [right for right, _ in found] == [False, False]
        assert "no such project" in found[0][1]
        assert "GitLab has it disabled after failures" in found[1][1]


def test_a_field_that_is_not_shown_is_right_and_a_template_of_the_body_is_wrong() -> None:
    assert differences(Hook(id=1, url=NOWHERE)) == {}
    found = differences(Hook(id=1, url=NOWHERE, custom_webhook_template="{}"))
    assert list(found) == ["custom_webhook_template"]


def settings(**ingest: str) -> Settings:
    config = {
        "models": {"default": "gemini-3.8-flash"},
        "sessions": {"store": "file:///tmp/x"},
        "projects": {"group/app": {}, "team/*": {}},
        "workflows": {"look": {"prompt": "look.md"}},
        "ingest": ingest,
    }
    return Settings(Config.model_validate(config), Path("config.yaml"))


def test_without_projects_all_named_ones_are_meant_and_globs_are_said() -> None:
    said: list[str] = []
    assert chosen(settings(), [], said.append) == ["group/app"]
    assert said == ["team/*: is a glob; name its projects with --project"]
    assert chosen(settings(), ["team/one"], said.append) == ["team/one"]
    with pytest.raises(Invalid, match="other/one is not in the allow list"):
        chosen(settings(), ["other/one"], said.append)


def test_the_address_is_the_one_given_or_the_configured_one() -> None:
    said: list[str] = []
    given = "https://x.example.com/w"
    assert hook_url(settings(webhook_url=NOWHERE), given, said.append) == given
    assert said == []
    assert hook_url(settings(webhook_url=NOWHERE), None, said.append) == NOWHERE
    assert "ingest.webhook_url: WITHOUT TLS" in said[0]
    with pytest.raises(Invalid, match=r"ingest\.webhook_url: set the public address"):
        hook_url(settings(), None, said.append)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://x.example.com/w", "must begin with https://"),
        ("x", "must begin with https://"),
        ("https:///w", "must begin with https:// and a host"),
        ("https://:443/w", "must begin with https:// and a host"),
        ("https://bot@x.example.com/w", "no name and no password"),
        ("https://u:pw@x.example.com/w", "no name and no password"),
        ("https://[x/w", "is no address"),
        ("https://x.example.com:99999/w", "is no address"),
    ],
)
def test_no_hook_is_made_for_what_is_no_public_address(url: str, said: str) -> None:
    with pytest.raises(Invalid, match=f"--url: .*{said}") as error:
        hook_url(settings(), url, lambda text: None)
    assert "pw" not in str(error.value)
