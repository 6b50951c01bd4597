"""Compiling in the background."""

import threading

from autofuse.tuning.ahead import Background


def test_it_builds_in_order_while_something_else_is_done() -> None:
    built: list[int] = []
    ahead = Background(built.append)
    ahead.begin([1, 2, 3])
    while ahead.is_busy:
        pass
    assert built == [1, 2, 3]
    assert not ahead.is_busy


def test_who_settles_waits_for_what_is_being_built_and_gives_up_the_rest() -> None:
    begun, go_on, built = threading.Event(), threading.Event(), list[int]()

    def build(one: int) -> None:
        begun.set()
        go_on.wait()
        built.append(one)

    ahead = Background(build)
    ahead.begin([1, 2])
    begun.wait()
    threading.Timer(0.05, go_on.set).start()
    waited_s = ahead.settle()
    assert built == [1]
    assert waited_s > 0
    assert not ahead.is_busy


def test_it_can_begin_again_and_settle_with_nothing_begun() -> None:
    built: list[int] = []
    ahead = Background(built.append)
    ahead.settle()
    ahead.begin([1])
    while ahead.is_busy:
        pass
    ahead.begin([2])
    while ahead.is_busy:
        pass
    assert built == [1, 2]
