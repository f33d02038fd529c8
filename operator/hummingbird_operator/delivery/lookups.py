"""Facts that a decision about a run needs: the merge request now, a pipeline, a person's access level."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC

from hummingbird_operator.delivery.answers import RawMergeRequest, RawNote, RawPipeline, RawUser, read
from hummingbird_operator.delivery.awards import Awards, edited, when
from hummingbird_operator.delivery.reading import merge_request_path, project_path
from hummingbird_operator.errors import NotFound
from hummingbird_operator.forges.members import NO_ACCESS, Membership
from hummingbird_operator.forges.merge_requests import GENERATED_REF


@dataclass(frozen=True)
class MergeRequestHead:
    """A merge request as it is now.

    `pipeline_status` is GitLab's word for the head pipeline and `pipeline_id` its id, None when there is none or when
    it belongs to an older commit. `state` is opened, closed, locked or merged; `fork`: it comes from another project,
    or from one that is gone. `author_id` is None where GitLab does not say it.
    """

    sha: str
    pipeline_status: str | None
    pipeline_id: int | None
    state: str
    draft: bool
    title: str
    source_branch: str
    fork: bool
    author_id: int | None
    project_id: int | None = None


@dataclass(frozen=True)
class Pipeline:
    """A pipeline. `ref` of a merge request's is refs/merge-requests/N/head, …/merge or …/train.

    Of the last two `sha` is a commit that GitLab made, not the head. `source` is merge_request_event for them all.
    """

    id: int
    sha: str
    ref: str
    status: str
    source: str
    project_id: int | None = None


@dataclass(frozen=True)
class Said:
    """A note as it is now. Times are GitLab's texts; `edited`: its words were changed since, see `awards.edited`."""

    id: int
    author_id: int | None
    system: bool
    internal: bool
    body: str
    created_at: str = ""
    edited: bool = False
    project_id: int | None = None


class Lookups(Awards):
    """Reads only."""

    def head(self, project: str, iid: int) -> MergeRequestHead:
        """The merge request now: read it again before the answer is delivered."""
        raw = read(RawMergeRequest, self._get(merge_request_path(project, iid), f"{project}!{iid}"))
        pipeline = _current(raw)
        return MergeRequestHead(
            sha=raw.sha,
            pipeline_status=pipeline.status if pipeline else None,
            pipeline_id=pipeline.id if pipeline else None,
            state=raw.state,
            draft=raw.draft or raw.work_in_progress,
            title=raw.title,
            source_branch=raw.source_branch,
            fork=raw.source_project_id != raw.target_project_id,
            author_id=raw.author.id if raw.author else None,
            project_id=raw.project_id,
        )

    def said(self, project: str, iid: int, note_id: int) -> Said:
        """One note, whoever wrote it. Raises NotFound."""
        path = f"{merge_request_path(project, iid)}/notes/{note_id}"
        raw = read(RawNote, self._get(path, f"note {note_id} on {project}!{iid}"))
        moved = [] if raw.updated_at == raw.created_at else self.awards(project, iid, note_id)
        others = [when(raw.resolved_at), *(award.at for award in moved)]
        return Said(
            id=raw.id,
            author_id=raw.author.id if raw.author else None,
            system=raw.system,
            internal=raw.internal or raw.confidential,
            body=raw.body,
            created_at=raw.created_at,
            edited=raw.updated_at != raw.created_at and edited(when(raw.created_at), when(raw.updated_at), others),
            project_id=raw.project_id,
        )

    def pipeline(self, project: str, pipeline_id: int) -> Pipeline:
        """A pipeline of the project. Raises NotFound."""
        path = f"{project_path(project)}/pipelines/{pipeline_id}"
        raw = read(RawPipeline, self._get(path, f"pipeline {pipeline_id} of {project}"))
        return Pipeline(pipeline_id, raw.sha, raw.ref, raw.status, raw.source, raw.project_id)

    def is_bot(self, user_id: int) -> bool:
        """Whether the account is a program's, such as that of an access token. Raises NotFound."""
        return read(RawUser, self._get(f"/users/{user_id}", f"account {user_id}")).bot

    def access_level(self, project: str, user_id: int) -> int:
        """The account's level in the project, also an inherited one: 30 is Developer, 40 Maintainer.

        0 for who is no member (GitLab's 404), is not active, or whose membership has ended. Every other failure is
        raised: Unavailable, or Invalid for a project that the bot does not see.
        """
        try:
            answer = self._get(f"{project_path(project)}/members/all/{user_id}", f"account {user_id} in {project}")
        except NotFound:
            return NO_ACCESS
        return read(Membership, answer).level(self._now().astimezone(UTC).date())


def _current(raw: RawMergeRequest) -> RawPipeline | None:
    """The head pipeline, unless it is an older commit's; generated merge refs have a SHA of their own."""
    pipeline = raw.head_pipeline
    if pipeline is None or not pipeline.status:
        return None
    return pipeline if pipeline.sha == raw.sha or GENERATED_REF.fullmatch(pipeline.ref) else None
