"""What all provider servers have in common, tried on each."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests

from hummingbird_ai.testing import (
    Answer,
    ClaudeServer,
    Drip,
    Drop,
    GeminiServer,
    HttpError,
    ReceivedCall,
    Reply,
    Search,
    Stall,
    observing,
    say,
)
from hummingbird_ai.testing.server import ProviderServer
from tests.unit.hummingbird_ai.testing.claude import talk

GEMINI = "/v1/models/gemini-3.8-flash:generateContent"
HEADERS = {"x-goog-api-key": "test-key", "Authorization": "Bearer test-token", **talk.SEARCHES}
GOOD: dict[type[ProviderServer], tuple[str, dict[str, Any]]] = {
    GeminiServer: (GEMINI, {"contents": [{"parts": [{"text": "go"}]}]}),
    ClaudeServer: (talk.path(), talk.body_of(talk.user())),
}
Make = Callable[..., ProviderServer]
on_each = pytest.mark.parametrize("make", GOOD)


def ask(server: ProviderServer, body: Any = None, timeout: float = 10) -> requests.Response:
    target, good = GOOD[type(server)]
    data = json.dumps(good if body is None else body)
    return requests.post(server.url + target, data=data, headers=HEADERS, timeout=timeout)


@on_each
def test_only_accepted_calls_are_numbered_for_the_script(make: Make) -> None:
    numbers: list[int] = []

    def script(body: dict[str, Any], n: int) -> Reply:
        numbers.append(n)
        return say("hi")

    with make(script) as server:
        bodies: list[dict[str, Any] | None] = [None, {}, None]
        for body in bodies:
            ask(server, body)
        assert [received.number for received in server.calls] == [0, 1, 2]
        assert [received.refused is None for received in server.calls] == [True, False, True]
        assert server.calls[0].at <= server.calls[2].at
        assert server.calls[0].body == GOOD[type(server)][1]

    assert numbers == [0, 1]


@on_each
@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b'{"a": NaN}', b'{"a": "\\uD83d"}', b"[" * 100_000])
def test_a_body_that_is_no_json_object_is_refused(make: Make, data: bytes) -> None:
    with make(lambda body, n: say("hi")) as server:
        target, _ = GOOD[type(server)]
        response = requests.post(server.url + target, data=data, headers=HEADERS, timeout=10)

    assert response.status_code == 400
    assert "JSON" in response.json()["error"]["message"]


@on_each
def test_a_pair_of_surrogates_is_read(make: Make) -> None:
    with make(lambda body, n: say("hi")) as server:
        target, good = GOOD[type(server)]
        data = json.dumps(good).replace("go", "\\ud83d\\ude00")
        assert requests.post(server.url + target, data=data, headers=HEADERS, timeout=10).status_code == 200


@on_each
def test_an_exception_of_the_script_reaches_the_test(make: Make) -> None:
    def script(body: dict[str, Any], n: int) -> Reply:
        assert n > 0, "the first call was not expected"
        return say("hi")

    server = make(script)
    server.start()
    assert ask(server).status_code == 500
    with pytest.raises(AssertionError, match="not expected"):
        server.close()


@on_each
def test_a_stalled_call_goes_on_when_it_is_released_and_ends_when_the_server_closes(make: Make) -> None:
    answers: list[Any] = []

    def stalled(server: ProviderServer) -> None:
        try:
            answers.append(ask(server).text)
        except requests.RequestException as error:
            answers.append(error)

    with make(lambda body, n: Stall(say("late"), after_headers=n == 1)) as server:
        for expected in (1, 2):
            thread = threading.Thread(target=stalled, args=(server,))
            thread.start()
            while len(server.calls) < expected or not thread.is_alive():
                time.sleep(0.01)
            while thread.is_alive():
                server.release()
                thread.join(0.05)
        last = threading.Thread(target=stalled, args=(server,))
        last.start()
        while len(server.calls) < 3:
            time.sleep(0.01)
    last.join()

    assert ["late" in answer for answer in answers[:2]] == [True, True]
    assert isinstance(answers[2], requests.ConnectionError)


@on_each
def test_a_client_that_gives_up_on_a_stalled_call_frees_its_thread(make: Make) -> None:
    with make(lambda body, n: Stall()) as server:
        before = threading.active_count()
        with pytest.raises(requests.ReadTimeout):
            ask(server, timeout=0.2)
        deadline = time.monotonic() + 5
        while threading.active_count() > before and time.monotonic() < deadline:
            time.sleep(0.01)

        assert threading.active_count() <= before


@on_each
def test_a_drip_arrives_whole_and_a_dropped_call_has_no_answer(make: Make) -> None:
    with make(lambda body, n: Drip(say("slow"), seconds=0.001) if n == 0 else Drop()) as server:
        assert "slow" in ask(server).text
        with pytest.raises(requests.ConnectionError):
            ask(server)


@on_each
def test_the_calls_can_be_listed_and_released_from_outside(make: Make) -> None:
    with make(lambda body, n: say("hi")) as server:
        ask(server)
        ask(server, {})
        listed = requests.get(f"{server.url}/calls", timeout=5).json()["calls"]
        assert requests.post(f"{server.url}/release", timeout=5).status_code == 200
        assert requests.get(f"{server.url}/else", timeout=5).status_code == 404

    assert [one["refused"] for one in listed] == [False, True]


@on_each
def test_a_server_that_was_never_started_can_be_closed_and_closing_twice_is_harmless(make: Make) -> None:
    server = make(lambda body, n: HttpError(500))
    server.close()
    server.close()


@pytest.mark.parametrize(
    ("module", "options", "make"),
    [
        ("gemini_server", ["--api-key", "test-key"], GeminiServer),
        ("claude_server", ["--bearer-token", "test-token"], ClaudeServer),
    ],
)
def test_the_server_runs_as_a_command_until_it_is_told_to_stop(
    tmp_path: Path, module: str, options: list[str], make: type[ProviderServer]
) -> None:
    (tmp_path / "my_script.py").write_text(
        "from hummingbird_ai.testing import say\ndef answer(body, n):\n    return say(f'call {n}')\n"
    )
    command = [sys.executable, "-W", "error", "-m", f"hummingbird_ai.testing.{module}"]
    arguments = ["--port", "0", "--script", "my_script:answer", *options]
    with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None
        target, body = GOOD[make]
        url = process.stdout.readline().strip() + target
        answer = requests.post(url, json=body, headers=HEADERS, timeout=10).text
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0

    assert "call 0" in answer


@pytest.mark.parametrize("module", ["gemini_server", "claude_server"])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--script", "nothing"], "--script nothing: write it as module:function"),
        (["--script", "no_such_module:f"], "--script no_such_module:f: No module named 'no_such_module'"),
        (["--script", "json:no_such"], "--script json:no_such: module 'json' has no attribute 'no_such'"),
        (["--script", "json:loads", "--host", "192.0.2.1"], "--host 192.0.2.1 --port 0: "),
    ],
)
def test_a_command_that_cannot_serve_says_which_option_is_wrong(module: str, options: list[str], words: str) -> None:
    command = [sys.executable, "-m", f"hummingbird_ai.testing.{module}", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == 1
    assert done.stderr.startswith(words)


def test_an_observer_is_shown_what_any_server_accepts_while_it_is_open() -> None:
    outer: list[ReceivedCall] = []
    inner: list[ReceivedCall] = []
    with GeminiServer(lambda body, n: say("hi")) as gemini, ClaudeServer(lambda body, n: say("hi")) as claude:
        ask(gemini)
        with observing(outer.append):
            ask(gemini)
            with observing(inner.append), observing(inner.append):
                ask(claude)
                ask(claude, {})
            ask(claude)
        ask(claude)

    assert [call.provider for call in outer] == ["google", "anthropic", "anthropic"]
    assert [call.provider for call in inner] == ["anthropic", "anthropic"]
    assert (outer[1].path, outer[1].body) == GOOD[ClaudeServer]
    assert outer[1].headers["authorization"] == "Bearer test-token"
    assert outer[1].refused is None


@on_each
def test_what_an_observer_raises_is_raised_by_close_and_the_call_is_answered_all_the_same(make: Make) -> None:
    def oracle(call: ReceivedCall) -> None:
        raise AssertionError("the oracle says no")

    server = make(lambda body, n: say("hi"))
    server.start()
    with observing(oracle):
        assert ask(server).status_code == 200
    assert ask(server).status_code == 200
    with pytest.raises(AssertionError, match="the oracle says no"):
        server.close()


def test_observers_see_every_call_of_many_threads() -> None:
    seen: list[ReceivedCall] = []
    with ClaudeServer(lambda body, n: say("hi")) as server, observing(seen.append):
        threads = [threading.Thread(target=ask, args=(server,)) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert sorted(call.number for call in seen) == list(range(20))


@on_each
@pytest.mark.parametrize("nothing", [None, "hi", ("hi",)])
def test_a_script_that_gives_no_reply_is_told_so_at_once(make: Make, nothing: Any) -> None:
    with pytest.raises(TypeError, match=r"it returned .* for request 0: return an Answer"):  # noqa: SIM117
        with make(lambda body, n: nothing) as server:
            assert ask(server).status_code == 500


@pytest.mark.parametrize("make", GOOD)
def test_a_search_that_was_not_asked_for_is_a_fault_of_the_script(make: Make) -> None:
    plain = {**GOOD[make][1], "tools": []}  # type: ignore[index]
    with pytest.raises(ValueError, match="the request does not declare"):  # noqa: SIM117
        with make(lambda body, n: Answer(searches=(Search("q"),))) as server:
            assert ask(server, plain).status_code == 500
