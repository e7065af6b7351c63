"""Draw every picture of the documentation."""

from __future__ import annotations

from docs.pictures import FOLDER, PICTURES

for name, draw in PICTURES.items():
    (FOLDER / name).write_text(draw(), "utf-8")
