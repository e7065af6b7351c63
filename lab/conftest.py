"""Tests of the instruments follow the rules of the other tests: those for `make soak` are left out of `make test`."""

from __future__ import annotations

from tests.conftest import pytest_collection_modifyitems as pytest_collection_modifyitems
