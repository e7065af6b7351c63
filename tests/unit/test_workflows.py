"""Workflows of the forge: valid by its schema, pinned, without rights that they do not need, and calling what exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FORGE = ROOT / ".github"
WORKFLOWS = sorted((FORGE / "workflows").glob("*.yml"))
SCHEMAS = {"vendor.github-workflows": WORKFLOWS, "vendor.dependabot": [FORGE / "dependabot.yml"]}


def jobs(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text("utf-8"))["jobs"]


@pytest.mark.slow
@pytest.mark.parametrize("schema", SCHEMAS)
def test_each_file_is_valid_by_its_schema(schema: str) -> None:
    program = Path(sys.executable).parent / "check-jsonschema"
    subprocess.run([program, "--builtin-schema", schema, *SCHEMAS[schema]], check=True)


def test_each_action_is_pinned_by_its_hash() -> None:
    used = [line for path in WORKFLOWS for line in path.read_text("utf-8").splitlines() if "uses:" in line]

    assert len(used) >= 8
    assert [line for line in used if not re.fullmatch(r" *-? *uses: [\w/-]+@[0-9a-f]{40} # v[\d.]+", line)] == []


def test_a_workflow_has_no_right_but_those_of_its_jobs() -> None:
    for path in WORKFLOWS:
        assert yaml.safe_load(path.read_text("utf-8"))["permissions"] == {}, path.name
        for name, job in jobs(path).items():
            assert job["timeout-minutes"] <= 180, (path.name, name)
            writes = {right for right, level in job["permissions"].items() if level == "write"}
            allowed = {("release.yml", "publish"): {"id-token"}, ("docs.yml", "publish"): {"contents"}}
            assert writes == allowed.get((path.name, name), set()), (path.name, name)


def test_only_a_person_lets_a_release_out() -> None:
    publish = jobs(FORGE / "workflows" / "release.yml")["publish"]

    assert publish["environment"] == "pypi" and publish["needs"] == "build"
    # The job with the right to publish runs nothing of the repository.
    assert not any("checkout" in step.get("uses", "") or "make" in step.get("run", "") for step in publish["steps"])


def test_workflows_run_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):.* ## ", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    run = {
        target
        for path in WORKFLOWS for job in jobs(path).values() for step in job["steps"]
        for target in re.findall(r"^make (\w+)", step.get("run", ""), re.MULTILINE)
    }  # fmt: skip

    assert {"test", "dist", "docs", "matrix", "audit"} == run <= targets
