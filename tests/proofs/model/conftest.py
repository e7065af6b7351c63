"""Assertion rewriting for the modules of the model."""

from __future__ import annotations

import pytest

MODULES = ("ground", "machine", "sides", "sending", "serving", "planning", "ending", "deciding", "places")

pytest.register_assert_rewrite(*(f"tests.proofs.model.{name}" for name in MODULES))
