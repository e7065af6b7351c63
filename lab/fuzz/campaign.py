"""One campaign: atheris mutates the inputs of a target in this process. A process runs a single campaign.

Findings do not end a campaign: the shortest input of each place that failed is kept in a folder.
"""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

from .target import LONGEST, Target, limit_memory

#: Seconds of one case after which libFuzzer ends the campaign. `Target.run` notices slow Python code before.
STUCK = 20


def main(arguments: Sequence[str]) -> None:
    """Run `TARGET SECONDS CORPUS FINDINGS MODULE…`; libFuzzer prints the figures, and ends the process."""
    name, seconds, corpus, findings, *modules = arguments
    os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="mq-fuzz-airflow-"))
    import atheris

    with atheris.instrument_imports(include=modules):
        from .targets import TARGETS

        target = TARGETS[name]
        target.load()
    keeper = Keeper(target, Path(findings))
    options = [f"-max_total_time={seconds}", f"-max_len={LONGEST}", f"-timeout={STUCK}", "-rss_limit_mb=4096"]
    options += ["-print_final_stats=1", "-use_value_profile=0", f"-artifact_prefix={findings}/stuck-"]
    atheris.Setup([sys.argv[0], *options, corpus], keeper.try_one)
    limit_memory()
    atheris.Fuzz()


class Keeper:
    """Tries inputs, and keeps the shortest one for each place that failed."""

    def __init__(self, target: Target, folder: Path) -> None:
        self.target, self.folder = target, folder
        self._lengths: dict[str, int] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def try_one(self, data: bytes) -> None:
        """Try an input."""
        try:
            self.target.run(data)
        except Exception as error:
            place = place_of(error)
            if len(data) < self._lengths.get(place, LONGEST + 1):
                self._lengths[place] = len(data)
                (self.folder / f"{place}.bin").write_bytes(data)
                text = "".join(traceback.format_exception(error))
                (self.folder / f"{place}.txt").write_text(text, errors="backslashreplace")


def place_of(error: BaseException) -> str:
    """Return the name of a finding: the type of its error, and the last line of the package or a target."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "site-packages" not in frame.filename]
    ours = [frame for frame in frames if "airflow_mq" in frame.filename or "targets" in frame.filename] or frames
    return f"{type(error).__name__}-{Path(ours[-1].filename).stem}-{ours[-1].lineno}"


if __name__ == "__main__":
    main(sys.argv[1:])
