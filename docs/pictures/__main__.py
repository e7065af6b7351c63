"""Draw every picture of the documentation."""

from __future__ import annotations

from docs.pictures import FOLDER, pictures

for name, text in pictures().items():
    (FOLDER / name).write_text(text, "utf-8")
