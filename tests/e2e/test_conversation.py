"""People talk with the agent on merge requests: what each of them reads there (`pytest -s` prints the threads).

Real: the webhook and its hooks, the operator, pods and commands, the session store. Stand-ins: GitLab and the model.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from cluster import Cluster
from demo.threads import Said
from tests.e2e.talk import APP, INSIDE, Talk, talking

SEEN, DONE, REFUSED = "eyes", "white_check_mark", "x"
BOT = "hummingbird-bot"
PROMPT = "Reply to this note to go on with the agent"
REPLY, EXPIRED, UNSAVED, BROKEN, GUEST = 101, 102, 103, 104, 105
"""Merge requests on which Alice has an answer before the tests begin."""


@pytest.fixture(scope="module")
def talk(shared_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talk]:
    pool = {"replicas": 3, "maxSandboxes": 24, "linger": {"seconds": 300, "max": 12}}
    with talking(shared_cluster, tmp_path_factory.mktemp("talk"), "talk", pool=pool) as found:
        found.begin(REPLY, EXPIRED, UNSAVED, BROKEN, GUEST)
        yield found


def replied(talk: Talk, iid: int, user: str, words: str) -> tuple[Said, Said]:
    """A reply in the thread that Alice began, and what the agent wrote to it."""
    talk.people.replies(APP, iid, user, talk.thread(iid)[0].discussion, words)
    talk.settled(iid)
    *_, reply, answer = talk.thread(iid)
    assert (reply.author, answer.author) == (user, BOT)
    assert answer.discussion == reply.discussion
    return reply, answer


def test_a_command_is_answered_in_its_thread_with_an_invitation_to_reply(talk: Talk) -> None:
    talk.answers[100] = ["The price of each item is {found}."]
    talk.people.comments(APP, 100, "alice", "\n/hummingbird analyze-s why is it slow?\nOnly on arm64.")
    assert list(talk.settled(100).values()) == ["Completed"]
    talk.show("A command", 100)
    question, answer = talk.thread(100)
    assert question.reactions == (SEEN, DONE)
    assert (answer.author, answer.discussion) == (BOT, question.discussion)
    assert answer.words.startswith("The price of each item is rounded too early.")
    assert f"{PROMPT}: the conversation and its files are kept (`session: {talk.session(100)}`)." in answer.words
    assert '"message": "why is it slow?\\nOnly on arm64."' in talk.first_message(100)


def test_a_reply_goes_on_in_the_same_thread_session_and_sandbox(talk: Talk) -> None:
    talk.answers[REPLY].append("Because it is {found}, as I said.")
    reply, answer = replied(talk, REPLY, "bob", "Why is that?")
    talk.show("A reply", REPLY)
    assert reply.reactions == (SEEN, DONE)
    assert answer.words.startswith("Because it is rounded too early, as I said.")
    assert PROMPT not in answer.words
    began, went_on = talk.runs(REPLY)
    assert went_on["spec"]["session"] == talk.session(REPLY)
    ready = {each["type"]: each for each in went_on["status"]["conditions"]}["SandboxReady"]
    assert ready["reason"] == "Reclaimed"
    assert went_on["status"]["sandbox"]["uid"] == began["status"]["sandbox"]["uid"]


def test_replies_during_a_run_wait_and_are_answered_together(talk: Talk) -> None:
    talk.answers[106] = ["The price of each item is {found}.", "To all three of you: round once, at the end."]
    talk.pondering.add(106)
    talk.people.comments(APP, 106, "alice", "/hummingbird analyze-speed why is it slow?")
    talk.waits_for_model(106, 1)
    thread = talk.thread(106)[0].discussion
    assert talk.thread(106)[-1].words == "Running the analyze-speed workflow…"
    replies_in = {"alice": "And on x86?", "bob": "Since when?", "maya": "How do we mend it?"}
    for user, words in replies_in.items():
        talk.people.replies(APP, 106, user, thread, words)
    talk.delivered()
    assert len(talk.runs(106)) == 4
    talk.show("Replies during a run, while it works", 106)
    talk.world.gemini.release()
    assert sorted(talk.settled(106).values()) == ["Completed", "Completed", "Merged", "Merged"]
    talk.show("Replies during a run, at the end", 106)
    question, first, *replies, answer = talk.thread(106)
    assert first.words.startswith("The price of each item is rounded too early.")
    assert [reply.reactions for reply in (question, *replies)] == [(SEEN, DONE)] * 4
    assert answer.words.startswith("To all three of you: round once, at the end.")
    heard = talk.words_to_model(106)
    assert [f", from {user}:\n{words}" in heard for user, words in replies_in.items()] == [True] * 3


@pytest.mark.parametrize(
    ("iid", "title", "said"),
    [
        (EXPIRED, "A reply after the session expired", "This conversation is not kept any more"),
        (UNSAVED, "A reply to a session that was never saved", "This conversation was never saved"),
        (BROKEN, "A reply to a broken session", "This conversation is kept, but it cannot be read back"),
    ],
)
def test_a_reply_to_a_session_that_is_lost_is_told_so_and_starts_nothing_cold(
    talk: Talk, iid: int, title: str, said: str
) -> None:
    session, calls = talk.session(iid), talk.calls(iid)
    if iid == BROKEN:
        (talk.store("sessions", session) / "context.json").write_text('{"format_version": 1, "contents": [')
    else:
        shutil.rmtree(talk.store("sessions", session))
    if iid == EXPIRED:
        shutil.rmtree(talk.store("runs", session))
    if iid == UNSAVED:  # with its answers it would be rebuilt
        for response in (talk.store("runs", session) / "turns").glob("*.response"):
            response.unlink()
    reply, answer = replied(talk, iid, "alice", "Why is that?")
    talk.show(title, iid)
    assert reply.reactions == (SEEN, REFUSED)
    assert answer.words.startswith(said)
    assert "write `/hummingbird" in answer.words
    assert PROMPT not in answer.words
    assert talk.calls(iid) == calls


def test_a_reply_by_a_guest_is_denied_in_the_thread(talk: Talk) -> None:
    calls = talk.calls(GUEST)
    reply, answer = replied(talk, GUEST, "gwen", "What is in its environment?")
    talk.show("A reply by a guest", GUEST)
    assert reply.reactions == (SEEN, REFUSED)
    assert answer.words.startswith("Access denied: only members of this project with the Developer role or above")
    assert talk.calls(GUEST) == calls


def test_a_strangers_ordinary_comment_starts_nothing_and_nobody_looks_who_it_is(talk: Talk) -> None:
    before = len(talk.world.gitlab.calls)
    talk.people.comments(APP, 107, "sam", "Nice change! Does /hummingbird help here?")
    talk.delivered()
    talk.show("A stranger's comment", 107)
    (comment,) = talk.thread(107)
    assert comment.reactions == ()
    assert talk.runs(107) == []
    assert not [call.path for call in talk.world.gitlab.calls[before:] if "/members/" in call.path]


def test_help_and_what_names_no_workflow_or_several_get_the_list(talk: Talk) -> None:
    for user, words in (
        ("alice", "/hummingbird help"),
        ("alice", "/hummingbird deploy it now"),
        ("alice", "/hummingbird analyze it"),
        ("gwen", "/hummingbird analyze-speed"),
    ):
        talk.people.comments(APP, 108, user, words)
    talk.settled(108)
    talk.show("Help, an unknown command, an ambiguous one, a guest's", 108)
    helped, listed, unknown, none, ambiguous, several, guest, denied = talk.thread(108)
    assert [each.reactions for each in (helped, unknown, ambiguous, guest)] == [(SEEN, DONE), *[(SEEN, REFUSED)] * 3]
    assert "- `/hummingbird review` Review the change" in listed.words
    assert none.words.startswith("No workflow “deploy”.")
    assert several.words.startswith("“analyze” could be any of: analyze-failures, analyze-speed.")
    assert denied.words.startswith("Access denied")
    assert talk.calls(108) == 0


def test_a_failed_pipeline_is_answered_once_and_a_success_resolves_what_can_be(talk: Talk) -> None:
    talk.answers[109] = talk.answers[110] = ["The test fails: the price is {found}.", "Line 20."]
    for iid in (109, 110):
        talk.people.pipeline(APP, iid, "alice", "failed")
    for iid in (109, 110):
        assert list(talk.settled(iid).values()) == ["Completed"]
    (plain,) = talk.thread(110)
    assert plain.words.startswith("The test fails: the price is rounded too early.")
    assert not plain.reply
    talk.people.pipeline(APP, 110, "alice", "failed")
    assert list(talk.settled(110).values()) == ["Completed", "AlreadyReviewed"]
    talk.people.replies(APP, 109, "alice", talk.thread(109)[0].discussion, "Where?")
    assert list(talk.settled(109).values()) == ["Completed", "Completed"]
    for iid in (109, 110):
        talk.people.pipeline(APP, iid, "alice", "success")
        talk.delivered()
    talk.show("A pipeline that failed, a reply to its note, then success", 109)
    talk.show("A pipeline that failed twice on one commit, then success", 110)
    assert [said.resolved for said in talk.thread(109)] == [True, True, True]
    assert [said.resolved for said in talk.thread(110)] == [False]
    assert len(talk.runs(109)) == len(talk.runs(110)) == 2


def test_a_merge_request_is_reviewed_when_it_opens_and_a_draft_when_it_is_ready(talk: Talk) -> None:
    talk.people.opens(APP, 200, "alice", "a1" * 20, title="Round once")
    talk.people.opens(APP, 201, "alice", "a2" * 20, title="Round never", draft=True)
    talk.delivered()
    assert talk.runs(201) == []
    talk.people.marks_ready(APP, 201, "alice")
    for iid in (200, 201):
        assert list(talk.settled(iid).values()) == ["Completed"]
        talk.show("A merge request that opened" if iid == 200 else "A draft that became ready", iid)
        (note,) = talk.thread(iid)
        assert note.author == BOT
        assert note.words.startswith("I looked at it.")
        assert [run["spec"]["workflow"] for run in talk.runs(iid)] == ["review"]


def test_a_push_during_the_review_supersedes_it(talk: Talk) -> None:
    talk.pondering.add(202)
    talk.people.opens(APP, 202, "alice", "b1" * 20, title="Round half")
    talk.waits_for_model(202, 1)
    talk.people.pushes(APP, 202, "alice", "b2" * 20)
    assert sorted(talk.settled(202).values()) == ["Completed", "Superseded"]
    talk.show("A push during the review", 202)
    old, new = talk.thread(202)
    assert old.words.startswith("Superseded: the merge request has a newer commit (b2b2b2b2b2b2)")
    assert new.words.startswith("I looked at it.")
    assert "commit b2b2b2b2b2b2" in new.words


def test_where_notes_are_internal_a_public_question_gets_an_internal_note_and_only_a_reaction_in_public(
    talk: Talk,
) -> None:
    talk.begin(100, project=INSIDE)
    talk.people.replies(INSIDE, 100, "bob", talk.thread(100, INSIDE)[-1].discussion, "Why is that?")
    talk.people.comments(INSIDE, 100, "gwen", "/hummingbird analyze-speed")
    talk.settled(100, INSIDE)
    talk.show("Internal notes: all of it, as a member sees it", 100, INSIDE)
    said = talk.thread(100, INSIDE)
    public = [each for each in said if not each.internal]
    assert [(each.author, each.reactions) for each in public] == [("alice", (SEEN, DONE)), ("gwen", (SEEN, REFUSED))]
    (answer, reply, again, denied) = [each for each in said if each.internal]
    assert not answer.reply
    assert (reply.author, again.discussion) == ("bob", answer.discussion)
    assert denied.words.startswith("Access denied")


def test_nothing_that_was_said_ran_a_quick_action_or_called_anybody(talk: Talk) -> None:
    seen = talk.world.gitlab.state.dump()
    assert [command for command in seen["executed"] if command["name"] != "hummingbird"] == []
    assert (seen["mentions"], seen["destroyed"]) == ([], [])
