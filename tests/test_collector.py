"""Collections of cycles while a program is planned."""

import gc

import pytest

from autofuse.collector import SELDOM, seldom_collecting


@pytest.fixture(autouse=True)
def as_before():
    before = gc.get_threshold()
    gc.unfreeze()  # a plugin of pytest may have set aside what it found
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def test_what_was_there_is_set_aside_and_comes_back() -> None:
    before = gc.get_threshold()
    with seldom_collecting():
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold() == (SELDOM, *before[1:])
        assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    assert gc.get_threshold() == before


def test_only_the_last_one_to_leave_undoes_it() -> None:
    before = gc.get_threshold()
    with seldom_collecting():
        with seldom_collecting():
            pass
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold()[0] == SELDOM
    assert gc.get_threshold() == before


def test_what_others_set_stays() -> None:
    gc.freeze()
    gc.set_threshold(0)
    with seldom_collecting():
        assert gc.get_threshold()[0] == 0
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() > 0


def test_it_is_undone_after_a_failure() -> None:
    before = gc.get_threshold()
    with pytest.raises(ValueError, match="planning"), seldom_collecting():
        raise ValueError("planning")
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
