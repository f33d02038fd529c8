from __future__ import annotations

import pytest

from cluster import providers
from cluster.errors import NoProvider
from cluster.providers import Facts, choose

LINUX = Facts(system="Linux", root=True, go="/bin/go", apt=True)


def test_a_kubeconfig_of_the_user_comes_before_everything_else() -> None:
    facts = Facts(kubeconfig="/k", kind="/bin/kind", engine="docker", root=True, go="/bin/go", apt=True)
    choice = choose(facts)
    assert choice.provider == "kubeconfig"
    assert "HUMMINGBIRD_KUBECONFIG names one" in str(choice)


def test_kind_is_taken_when_an_engine_answers_and_the_reason_names_it() -> None:
    choice = choose(Facts(kind="/bin/kind", engine="podman", root=True, go="/bin/go", apt=True))
    assert choice.provider == "kind"
    assert "podman answers" in choice.reason
    assert "HUMMINGBIRD_KUBECONFIG is not set" in choice.reason


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (LINUX, "there is no `kind`"),
        (Facts(kind="/bin/kind", root=True, go="/bin/go", apt=True), "no docker or podman answers"),
        (Facts(engine="docker", root=True, go="/bin/go", apt=True), "there is no `kind`"),
    ],
)
def test_otherwise_one_is_built_here_and_the_reason_says_why_not_kind(facts: Facts, why: str) -> None:
    choice = choose(facts)
    assert choice.provider == "local"
    assert why in choice.reason
    assert "\n" not in str(choice)


@pytest.mark.parametrize(
    ("facts", "missing"),
    [
        (Facts(system="Darwin", go="/bin/go"), "Linux, root, apt-get"),
        (Facts(system="Linux", root=True, apt=True), "(missing: Go)"),
        (Facts(system="Linux", go="/bin/go", apt=True), "(missing: root)"),
    ],
)
def test_where_nothing_fits_the_error_says_what_is_missing_for_each_way(facts: Facts, missing: str) -> None:
    with pytest.raises(NoProvider) as caught:
        choose(facts)
    text = str(caught.value)
    assert missing in text
    assert "set HUMMINGBIRD_KUBECONFIG" in text
    assert "kind and a running docker or podman" in text


def test_an_engine_is_asked_only_where_kind_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "_which", lambda name: None if name == "kind" else f"/bin/{name}")
    monkeypatch.setattr(providers, "attempt", lambda *_, **__: pytest.fail("asked an engine"))
    facts = providers.gather({})
    assert facts.kind is None
    assert facts.engine is None


def test_an_engine_whose_server_does_not_answer_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"docker": "\n", "podman": "4.3.1\n"}  # docker prints an empty version when only its client is there
    monkeypatch.setattr(providers, "_which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(providers, "attempt", lambda argv, **_: answers[argv[0]])
    assert providers.engine() == "podman"
    answers["podman"] = ""
    assert providers.engine() is None


def test_an_empty_variable_names_no_kubeconfig() -> None:
    assert providers.gather({"HUMMINGBIRD_KUBECONFIG": ""}).kubeconfig is None
