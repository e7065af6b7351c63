"""`make audit`: a list of what is shipped, known weaknesses of it, and a search of the package's code.

    python -m tests.audit TOOLS FOLDER

TOOLS is the folder of the programs bandit, cyclonedx-py, pip-audit, zizmor and actionlint; FOLDER receives the
results. Each step ends as `ok`, as `found`, or as `could not ask` if a registry or a program did not answer. Only
`found` fails the command.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "airflow_mq" / "page"
SECONDS = 300
Result = tuple[str, str]


def answer(words: list[str], folder: Path = ROOT) -> tuple[str, str]:
    """Run a program; return what it printed and its complaint."""
    try:
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", f"{type(error).__name__}: {words[0]}"
    return done.stdout, done.stderr


def read(text: str) -> Any:
    """Return JSON, or None if the text is none."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def last_line(text: str) -> str:
    """Return the last line of a complaint, shortened."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:120] if lines else "no answer"


def components(tools: Path, folder: Path) -> Result:
    """Write the lists of components (CycloneDX) of the package and of its page."""
    asked = {
        "sbom-python.json": ([str(tools / "cyclonedx-py"), "requirements", "requirements.txt"], ROOT),
        "sbom-page.json": (
            ["npm", "sbom", "--sbom-format", "cyclonedx", "--omit", "dev", "--package-lock-only"], PAGE,
        ),
    }  # fmt: skip
    counts = []
    for name, (words, place) in asked.items():
        out, complaint = answer(words, place)
        found = read(out)
        if not isinstance(found, dict) or found.get("bomFormat") != "CycloneDX":
            return "could not ask", f"{name}: {last_line(complaint)}"
        (folder / name).write_text(out)
        counts.append(f"{len(found.get('components', []))} components in {name}")
    return "ok", ", ".join(counts)


def python_weaknesses(tools: Path, folder: Path) -> Result:
    """Ask for known weaknesses of the Python packages that the package needs."""
    words = [str(tools / "pip-audit"), "-r", "requirements.txt", "--require-hashes", "--disable-pip", "-f", "json"]
    out, complaint = answer(words)
    found = read(out)
    return judge_python(found) if isinstance(found, dict) else ("could not ask", last_line(complaint))


def judge_python(found: dict[str, Any]) -> Result:
    """Return the result for an answer of pip-audit, which skips packages that it could not ask about."""
    packages = found["dependencies"]
    weak = [f"{one['name']} {one['version']}: {bug['id']}" for one in packages for bug in one.get("vulns", ())]
    skipped = [one["name"] for one in packages if "skip_reason" in one]
    if weak:
        return "found", ", ".join(weak)
    if skipped:
        return "could not ask", f"about {len(skipped)} of {len(packages)} packages: {', '.join(skipped)}"
    return "ok", f"no known weakness of {len(packages)} packages"


def page_weaknesses(tools: Path, folder: Path) -> Result:
    """Ask for known weaknesses of the npm packages that the page contains."""
    out, complaint = answer(["npm", "audit", "--omit", "dev", "--package-lock-only", "--json"], PAGE)
    return judge_page(read(out), complaint)


def judge_page(found: Any, complaint: str) -> Result:
    """Return the result for an answer of `npm audit`."""
    if not isinstance(found, dict) or "vulnerabilities" not in found:
        said = found.get("message") if isinstance(found, dict) else None
        return "could not ask", str(said or last_line(complaint))[:160]
    weak = sorted(found["vulnerabilities"])
    return ("found", ", ".join(weak)) if weak else ("ok", "no known weakness")


def code(tools: Path, folder: Path) -> Result:
    """Search the package's code with bandit, for findings of high severity."""
    out, complaint = answer(
        [str(tools / "bandit"), "-q", "-r", "airflow_mq", "-x", "airflow_mq/page", "-f", "json", "-lll"]
    )
    found = read(out)
    if not isinstance(found, dict):
        return "could not ask", last_line(complaint)
    (folder / "bandit.json").write_text(out)
    places = [f"{one['filename']}:{one['line_number']} {one['test_id']}" for one in found["results"]]
    return ("found", ", ".join(places)) if places else ("ok", "no finding of high severity")


def workflows(tools: Path, folder: Path) -> Result:
    """Search the forge's workflows with zizmor, for rights and inputs that an attacker could use."""
    out, complaint = answer([str(tools / "zizmor"), "--offline", "--no-exit-codes", "--format", "json", ".github"])
    found = read(out)
    if not isinstance(found, list):
        return "could not ask", last_line(complaint)
    (folder / "zizmor.json").write_text(out)
    return ("found", ", ".join(sorted({one["ident"] for one in found}))) if found else ("ok", "no finding")


def workflow_syntax(tools: Path, folder: Path) -> Result:
    """Check keys, expressions and types of the forge's workflows with actionlint."""
    out, complaint = answer([str(tools / "actionlint"), "-format", "{{json .}}"])
    found = read(out)
    if not isinstance(found, list):
        return "could not ask", last_line(complaint)
    places = [f"{one['filepath']}:{one['line']} {one['message']}" for one in found]
    return ("found", ", ".join(places)) if places else ("ok", "no finding")


STEPS: tuple[Callable[[Path, Path], Result], ...] = (
    components, python_weaknesses, page_weaknesses, code, workflows, workflow_syntax,
)  # fmt: skip


def main(tools: Path, folder: Path) -> int:
    """Run all steps; return 1 if one of them found something."""
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for step in STEPS:
        level, what = step(tools, folder)
        failed |= level == "found"
        print(f"{step.__name__.replace('_', ' '):20}{level:15}{what}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).absolute(), Path(sys.argv[2]).absolute()))
