"""The machine's assertions tell what they compared."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.model.machine", "tests.model.sides")
