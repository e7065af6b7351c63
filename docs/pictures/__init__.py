"""Pictures of the documentation: `make pictures` draws them as SVG files in docs/images."""

from __future__ import annotations

from pathlib import Path

from . import architecture, crash, orders, ring, sequence

FOLDER = Path(__file__).parents[1] / "images"
#: File name of each picture, and the function that returns its text.
PICTURES = {
    "architecture.svg": architecture.draw,
    "ring.svg": ring.draw,
    "block-life.svg": sequence.draw,
    "crash.svg": crash.draw,
    "orders.svg": orders.draw,
}
