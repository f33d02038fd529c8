"""The committed CRDs say what the models say."""

from __future__ import annotations

from pathlib import Path

import yaml

from hummingbird_operator.api.schema import differences, render

CRDS = Path(__file__).parents[2] / "crds"


def test_the_committed_crds_are_those_of_the_models() -> None:
    assert differences(CRDS) == "", "run `python -m hummingbird_operator.api.schema --write` and commit crds/"


def test_every_crd_is_in_the_kustomization() -> None:
    listed = yaml.safe_load((CRDS / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    assert sorted(listed) == sorted(render()) == sorted(p.name for p in CRDS.glob("*.yaml") if p.name in render())
