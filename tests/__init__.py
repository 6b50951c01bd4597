"""Tests, and in `support` what they have in common."""

import pytest

# Asserts of what is shared say what they saw, as those of tests do.
pytest.register_assert_rewrite("tests.support")
