from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hummingbird_ai import errors as ai
from hummingbird_ai.abort import Abort
from hummingbird_ai.calls import generate_with_retry
from hummingbird_ai.messages import Finish, ModelResponse, ToolCall, Usage
from hummingbird_ai.testing.scripted import StepSource
from hummingbird_operator.errors import Conflict, LeadershipLost, SandboxLost
from hummingbird_operator.sessions import prompts
from hummingbird_operator.sessions.budget import Budget
from hummingbird_operator.sessions.outcomes import Outcome
from tests.unit.sessions.runs import Clock, Run, said, shell

LOOK = ToolCall("1", "look", {})


def looking(run: Run) -> Run:
    run.add_tool("look", lambda: {"seen": "it"})
    return run


def test_text_without_calls_is_the_answer() -> None:
    run = Run(None, ["All is well."])
    result = run.start()
    assert (result.outcome, result.text, result.iterations, result.message) == (
        Outcome.COMPLETED,
        "All is well.",
        1,
        "",
    )
    assert [content["role"] for content in result.contents] == ["user", "assistant"]
    assert result.cost_usd > 0


def test_tools_are_run_and_their_results_are_seen_in_the_next_turn(tmp_path: Path) -> None:
    run = Run(tmp_path, [[shell("echo one"), shell("echo two; exit 3", 2)], "Done."])
    result = run.start()
    assert result.text == "Done."
    results = [part["result"] for part in run.model.calls[1].contents[-1]["parts"]]
    assert results == [
        {"exit_code": 0, "stdout": "one\n", "stderr": ""},
        {"exit_code": 3, "stdout": "two\n", "stderr": ""},
    ]
    assert run.sandbox is not None
    assert run.sandbox.executed == ["u1/1/0", "u1/1/1"]


def test_of_one_turn_at_most_32_calls_are_run_and_a_replay_says_the_same() -> None:
    run = looking(Run(None, [[replace(LOOK, id=str(number)) for number in range(40)], "Done."]))
    contents = run.start().contents
    results = [part["result"] for part in contents[2]["parts"]]
    assert results[:32] == [{"seen": "it"}] * 32
    assert len(results) == 40
    assert all("at most 32 calls a turn" in result["error"] for result in results[32:])
    assert run.start().contents == contents


def test_what_was_handed_in_is_never_changed() -> None:
    run = looking(Run(None, [[LOOK], "", "Done."]))
    contents = [run.model.make_user_content("hello")]
    before = json.dumps(contents)
    result = run.start(contents=contents)
    assert json.dumps(contents) == before
    assert result.contents[0] is contents[0]


def test_text_beside_calls_is_kept_and_the_loop_goes_on() -> None:
    run = looking(Run(None, [said("Let me look.", [LOOK]), ai.Overloaded("down")]))
    result = run.start()
    assert (result.outcome, result.text) == (Outcome.MODEL_ERROR, "Let me look.")
    assert len(result.contents) == 3


def test_warnings_are_ephemeral_and_tools_stay_at_80_percent_of_the_turns() -> None:
    run = looking(Run(None, lambda _: LOOK, budget=Budget(max_iterations=5)))
    result = run.start()
    assert [call.ephemeral for call in run.model.calls] == [
        (),
        (),
        (),
        (prompts.ITERATION_WARNING,),
        (prompts.FINAL_TURN_WARNING,),
    ]
    assert [call.allow_tools for call in run.model.calls] == [True, True, True, True, False]
    assert result.outcome is Outcome.BUDGET_EXHAUSTED
    for warning in (prompts.ITERATION_WARNING, prompts.FINAL_TURN_WARNING):
        assert warning[:40] not in json.dumps(list(result.contents))


def test_with_many_turns_one_is_held_back_for_a_final_answer_that_comes_empty() -> None:
    def script(contents: Any) -> Any:
        return LOOK if len(contents) < 17 else next(last)

    last = iter(["", "The answer."])
    run = looking(Run(None, script, budget=Budget(max_iterations=10)))
    result = run.start()
    assert (result.outcome, result.text, result.iterations) == (Outcome.COMPLETED, "The answer.", 10)
    assert [call.allow_tools for call in run.model.calls][-3:] == [True, False, False]
    assert run.model.calls[-1].ephemeral == (prompts.FINAL_TURN_WARNING,)


def test_the_system_prompt_and_the_tools_are_the_same_in_every_call() -> None:
    run = looking(Run(None, lambda _: LOOK, budget=Budget(max_iterations=6)))
    run.start()
    assert len({call.system for call in run.model.calls}) == 1
    assert len({tuple(tool.name for tool in call.tools) for call in run.model.calls}) == 1


def test_the_context_is_counted_on_the_last_pass_and_not_on_what_was_billed() -> None:
    billed = Usage(input_tokens=500_000, output_tokens=10, context_tokens=1_000)
    run = looking(Run(None, [said("", [LOOK], usage=billed), "Done."]))
    run.start()
    assert run.model.calls[1].ephemeral == ()


def test_a_context_at_80_percent_is_warned_of_and_at_100_percent_is_the_final_turn() -> None:
    steps = [said("", [LOOK], usage=Usage(context_tokens=size)) for size in (47_999, 48_000, 60_000)]
    script: list[StepSource] = [*steps, "Done."]
    run = looking(Run(None, script))
    result = run.start()
    assert [call.ephemeral for call in run.model.calls] == [
        (),
        (),
        (prompts.CONTEXT_WARNING,),
        (prompts.FINAL_TURN_WARNING,),
    ]
    assert result.context_tokens > 0


def test_a_final_turn_stays_final_even_if_the_context_shrinks() -> None:
    shrunk = said("", usage=Usage(context_tokens=10))
    run = looking(Run(None, [said("", [LOOK], usage=Usage(context_tokens=60_000)), shrunk, "Done."]))
    assert run.start().outcome is Outcome.COMPLETED
    assert [call.allow_tools for call in run.model.calls] == [True, False, False]


def test_a_model_that_does_not_report_its_context_is_bounded_by_bytes() -> None:
    run = Run(None, [said("", [LOOK], usage=Usage(input_tokens=5)), "Done."])
    run.add_tool("look", lambda: {"seen": "x" * 4000})
    result = run.start()
    assert result.context_tokens > 0
    assert run.start().outcome is Outcome.COMPLETED


def test_calls_in_a_final_turn_are_not_run_and_the_text_beside_them_is_the_answer() -> None:
    run = Run(None, [said("The answer.", [LOOK])], budget=Budget(max_iterations=1))
    run.add_tool("look", lambda: pytest.fail("it was run"))
    result = run.start()
    assert (result.outcome, result.text) == (Outcome.COMPLETED, "The answer.")
    assert "not run" in json.dumps(result.contents[-1])


def test_empty_answers_are_nudged_twice_and_never_stored() -> None:
    run = Run(None, ["", "  \n", said("", finish=Finish.EMPTY, finish_reason="STOP")])
    result = run.start()
    assert (result.outcome, result.iterations) == (Outcome.MODEL_ERROR, 3)
    assert "3 times (STOP)" in result.message
    assert [call.ephemeral for call in run.model.calls] == [(), *[(prompts.EMPTY_RESPONSE_NUDGE,)] * 2]
    assert len(result.contents) == 1
    assert all(len(call.contents) == 1 for call in run.model.calls)


def test_nudges_are_available_again_after_a_turn_that_ran_tools() -> None:
    run = looking(Run(None, ["", "", LOOK, "", "", "Done."]))
    assert run.start().outcome is Outcome.COMPLETED


def test_a_malformed_call_gets_its_own_nudge_and_its_text_is_not_taken_for_the_answer() -> None:
    run = Run(None, [said("I will write the file", finish=Finish.MALFORMED), "Done."])
    result = run.start()
    assert result.text == "Done."
    assert run.model.calls[1].ephemeral == (prompts.MALFORMED_CALL_NUDGE,)
    assert len(run.model.calls[1].contents) == 1


def test_calls_that_were_cut_at_the_output_limit_are_not_run() -> None:
    run = Run(None, [said("", [LOOK], finish=Finish.MAX_TOKENS), "Done."])
    run.add_tool("look", lambda: pytest.fail("it was run"))
    assert run.start().outcome is Outcome.COMPLETED
    assert run.model.calls[1].ephemeral == (prompts.MALFORMED_CALL_NUDGE,)


def test_an_answer_that_was_cut_is_kept_and_said_to_be_cut() -> None:
    result = Run(None, [said("The first half", finish=Finish.MAX_TOKENS)]).start()
    assert (result.outcome, result.text) == (Outcome.COMPLETED, "The first half")
    assert result.incomplete == ("the answer was cut at the model's output limit",)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ai.Overloaded("down"), Outcome.MODEL_ERROR),
        (ai.AuthFailed("no key"), Outcome.MODEL_ERROR),
        (ai.Refused("policy"), Outcome.REFUSED),
        (ai.ContextOverflow("too long"), Outcome.CONTEXT_OVERFLOW),
        (ai.RequestTooLarge("too big"), Outcome.CONTEXT_OVERFLOW),
        (ai.CallAborted("Cancelled"), Outcome.CANCELLED),
        (ai.CallAborted("Deleted"), Outcome.CANCELLED),
        (ai.CallAborted("TimedOut"), Outcome.TIMED_OUT),
        (ai.CallAborted("ShuttingDown"), Outcome.SHUTTING_DOWN),
    ],
)
def test_a_model_error_ends_the_loop_with_everything_that_was_done(error: ai.ModelError, outcome: Outcome) -> None:
    result = looking(Run(None, [said("So far.", [LOOK]), error])).start()
    assert (result.outcome, result.text, len(result.contents)) == (outcome, "So far.", 3)
    assert result.message == str(error)
    assert result.usage.input_tokens == 100


def test_what_was_billed_before_a_call_failed_is_counted() -> None:
    error = ai.Overloaded("down in the second pass")
    error.billed = ModelResponse(usage=Usage(input_tokens=7, context_tokens=9), cost_usd=Decimal("0.5"))
    result = Run(None, [error]).start()
    assert (result.usage.input_tokens, result.cost_usd) == (7, Decimal("0.5"))


def test_what_was_billed_before_a_retry_worked_is_counted_and_counted_again_by_a_replay() -> None:
    error = ai.Overloaded("down in the second pass")
    error.billed = ModelResponse(usage=Usage(input_tokens=7, context_tokens=9), cost_usd=Decimal("0.5"))
    run = Run(None, [error, said("Done.", cost_usd=Decimal(1))], budget=Budget(max_cost_usd=Decimal(5)))
    run.generate = partial(generate_with_retry, max_attempts=2, sleep=lambda _: None)
    result = run.start()
    assert (result.usage.input_tokens, result.cost_usd) == (107, Decimal("1.5"))
    assert run.start() == result


def test_an_answer_that_declines_is_an_end_with_its_words() -> None:
    result = Run(None, [said("I cannot", finish=Finish.REFUSED, finish_reason="SAFETY")]).start()
    assert (result.outcome, result.text) == (Outcome.REFUSED, "I cannot")
    assert "SAFETY" in result.message
    assert len(result.contents) == 1


def test_an_adapter_that_crashes_ends_the_loop_and_keeps_what_was_done() -> None:
    def script(contents: Any) -> Any:
        if len(contents) > 1:
            raise json.JSONDecodeError("cut", "{", 1)
        return said("So far.", [LOOK])

    result = looking(Run(None, script)).start()
    assert (result.outcome, result.text, len(result.contents)) == (Outcome.MODEL_ERROR, "So far.", 3)
    assert "JSONDecodeError" in result.message


def test_a_tool_that_raises_is_an_answer_to_the_model() -> None:
    run = Run(None, [LOOK, "Done."])

    def look() -> dict[str, Any]:
        raise KeyError("missing")

    run.add_tool("look", look)
    assert run.start().outcome is Outcome.COMPLETED
    assert "Tool look failed: 'missing'" in json.dumps(run.model.calls[1].contents[-1])


def test_a_lost_sandbox_ends_the_loop_and_the_history_stays_whole(tmp_path: Path) -> None:
    run = Run(tmp_path, [shell("echo hi")])
    assert run.sandbox is not None
    run.sandbox.lose("OOMKilled", "limit 1Gi")
    result = run.start()
    assert result.outcome is Outcome.SANDBOX_LOST
    assert "OOMKilled" in result.message
    told = json.dumps(result.contents[-1])
    assert "no result: the sandbox was lost" in told
    assert "what it had done by then stands" in told
    run.model.from_canonical(run.model.to_canonical([*result.contents, run.model.make_user_content("and?")]))


def test_an_abort_stops_before_the_next_call_and_before_the_next_tool() -> None:
    abort = Abort()
    run = Run(None, [[LOOK, replace(LOOK, id="2")]], abort=abort)
    seen: list[int] = []

    def look() -> dict[str, Any]:
        seen.append(1)
        abort.set("Cancelled")
        return {}

    run.add_tool("look", look)
    result = run.start()
    assert (result.outcome, len(seen), len(run.model.calls)) == (Outcome.CANCELLED, 1, 1)
    again = Run(None, ["never"], abort=abort).start()
    assert (again.outcome, again.iterations) == (Outcome.CANCELLED, 0)


def test_a_store_that_is_away_ends_the_loop_before_anything_is_bought() -> None:
    run = Run(None, ["Done."])
    run.store.down = True
    result = run.start()
    assert (result.outcome, run.model.calls) == (Outcome.STORE_UNAVAILABLE, [])


def test_a_process_that_no_longer_leads_may_not_conclude_the_run() -> None:
    run = Run(None, [LOOK])

    def look() -> dict[str, Any]:
        raise LeadershipLost("another leads")

    run.add_tool("look", look)
    with pytest.raises(LeadershipLost):
        run.start()

    other = Run(None, ["Done."])

    def write_first(name: str) -> None:
        if name == "before store.create":
            other.store.blobs["runs/u1/turns/0001.intent"] = b"{}"

    other.store.on_call = write_first
    with pytest.raises(Conflict, match="another process"):
        other.start()


def test_the_deadline_gives_a_final_turn_and_then_ends_the_run() -> None:
    clock = Clock()
    run = Run(None, lambda _: LOOK, clock=clock, budget=Budget(deadline=1000.0))

    def look() -> dict[str, Any]:
        clock.now = 940.0 if clock.now == 0.0 else 1000.0
        return {}

    run.add_tool("look", look)
    original = run.generate

    def slow(*args: Any, **options: Any) -> ModelResponse:
        if not options["allow_tools"]:
            clock.now = 1000.0
        response: ModelResponse = original(*args, **options)
        return response

    run.generate = slow
    result = run.start()
    assert [call.allow_tools for call in run.model.calls] == [True, False]
    assert result.outcome is Outcome.TIMED_OUT


def test_money_for_the_answer_is_held_back_and_a_call_that_does_not_fit_is_not_made() -> None:
    def price(*, input_tokens: int, max_output_tokens: int) -> Decimal:
        return Decimal(1)

    steps = [said("", [LOOK], cost_usd=Decimal(1)) for _ in range(9)]
    run = looking(Run(None, [*steps, "Done."], budget=Budget(max_cost_usd=Decimal(3)), worst_case=price))
    result = run.start()
    assert [call.allow_tools for call in run.model.calls] == [True, True, False]
    assert (result.outcome, result.cost_usd) == (Outcome.BUDGET_EXHAUSTED, Decimal(3))
    assert "$0.0000 of $3 is left, the next model call may cost $1.0000" in result.message


def test_a_run_without_money_for_one_call_makes_none() -> None:
    run = Run(None, ["never"], budget=Budget(max_cost_usd=Decimal("0.001")))
    assert (run.start().outcome, run.model.calls) == (Outcome.BUDGET_EXHAUSTED, [])


def test_a_model_without_a_price_is_charged_by_the_worst_case_of_its_usage() -> None:
    run = Run(None, ["Done."])
    run.model._rate = None
    assert run.start().cost_usd > 0


def test_gaps_in_results_are_in_the_result_once_and_bounded() -> None:
    run = Run(None, [[LOOK, replace(LOOK, id="2")], "Done."])
    gaps = iter([{"incomplete": ["page 3", "page 3"]}, {"incomplete": [f"item {n}" for n in range(30)]}])
    run.add_tool("look", lambda: next(gaps))
    incomplete = run.start().incomplete
    assert incomplete[0] == "page 3"
    assert len(incomplete) == 21
    assert incomplete[-1] == "and 11 more gaps"


def test_a_gap_that_is_no_list_counts_too() -> None:
    run = Run(None, [LOOK, "Done."])
    run.registry.execute = lambda *_, **__: {"incomplete": "half of it"}  # type: ignore[method-assign]
    assert run.start().incomplete == ("half of it",)


def test_progress_tells_each_turn_in_one_line(tmp_path: Path) -> None:
    run = Run(tmp_path, [[shell("true"), shell("true", 2)], "Done."])
    run.start()
    assert [progress.tools for progress in run.lines] == [("sandbox_exec", "sandbox_exec"), ()]
    assert run.lines[0].line.startswith("turn 1: sandbox_exec, sandbox_exec - ")
    assert run.lines[1].line.startswith("turn 2: stop - ")
    assert run.lines[1].cost_usd > run.lines[0].cost_usd


def test_an_answer_without_content_to_store_still_answers() -> None:
    run = Run(None, [])
    run.generate = lambda *_, **__: ModelResponse(text="Done.", usage=Usage(context_tokens=5))
    result = run.start()
    assert (result.outcome, result.text, len(result.contents)) == (Outcome.COMPLETED, "Done.", 1)


def test_a_resumed_run_is_bounded_by_what_was_restored_and_its_new_turn() -> None:
    asked: list[int] = []

    def price(*, input_tokens: int, max_output_tokens: int) -> Decimal:
        asked.append(input_tokens)
        return Decimal(0)

    run = Run(None, ["Done."], budget=Budget().fitted(restored_tokens=40_000, window=200_000), worst_case=price)
    first = run.model.make_user_content("x" * 100_000)
    run.start(contents=[first, run.model.make_user_content("and?")])
    assert 41_000 < asked[0] < 41_500


def test_sandbox_lost_in_a_data_source_passes_through_too() -> None:
    run = Run(None, [LOOK])

    def look() -> dict[str, Any]:
        raise SandboxLost("Evicted", "node pressure")

    run.add_tool("look", look)
    assert run.start().outcome is Outcome.SANDBOX_LOST
