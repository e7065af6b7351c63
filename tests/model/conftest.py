"""The machine's assertions tell what they compared."""

from __future__ import annotations

import pytest

MODULES = ("ground", "machine", "sides", "sending", "serving", "planning", "ending", "deciding", "places")

pytest.register_assert_rewrite(*(f"tests.model.{name}" for name in MODULES))
