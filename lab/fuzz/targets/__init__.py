"""The targets, by name."""

from __future__ import annotations

from ..target import Target
from . import asked, exchanged, named, sent, stored

TARGETS: dict[str, Target] = {
    target.name: target for module in (stored, sent, named, asked, exchanged) for target in module.TARGETS
}
