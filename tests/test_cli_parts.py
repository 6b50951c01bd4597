"""Parts of the command line on their own: signals, progress, arrays in files, text."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import typer

from autofuse.commands.arrays import input_keys, output_keys, read_arrays, write_arrays
from autofuse.commands.common import reported
from autofuse.commands.output import printable, table
from autofuse.commands.progress import StopSignals, progress_line, shown_progress
from autofuse.devices import present_device
from autofuse.errors import AutofuseError
from autofuse.graph import Graph, GraphBuilder
from autofuse.ops.dtypes import DType
from autofuse.tuning import Progress


def test_the_first_signal_asks_to_stop_and_the_second_aborts() -> None:
    before = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    with StopSignals() as stop:
        assert not stop()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert before == [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]


@pytest.mark.parametrize(
    ("raised", "code", "words"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (AutofuseError("two\nlines"), 2, "autofuse: two lines\n"),
        (OSError(28, "No space left on device", "/tmp/y"), 2, "/tmp/y: No space left on device"),
        (MemoryError(), 2, "autofuse: what was asked for takes more memory than there is\n"),
    ],
)
def test_errors_become_a_sentence_and_a_code(
    capsys: pytest.CaptureFixture[str], raised: BaseException, code: int, words: str
) -> None:
    @reported
    def command() -> None:
        raise raised

    with pytest.raises(typer.Exit) as ended:
        command()
    assert ended.value.exit_code == code
    assert words in capsys.readouterr().err


def test_a_programming_error_is_not_hidden() -> None:
    @reported
    def command() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        command()


def test_progress_says_best_trials_failures_and_time_left() -> None:
    line = progress_line(Progress(50.0, 100.0, "xla-2022", 7, 5, {"crash": 1}, 12.4, "final"))
    assert line == (
        "best 50 µs (2.00x xla-2022) | 7 trials, 5 measured | failed: 1 crash | 12 s left | final"
    )
    early = progress_line(Progress(None, None, "", 0, 0, {}, -0.5, "baselines"))
    assert early == "best - | 0 trials, 0 measured | 0 s left | baselines"


def test_progress_is_for_terminals_only() -> None:
    with shown_progress() as progress:
        assert progress is None


def half_graph() -> Graph:
    builder = GraphBuilder()
    x = builder.input("x", (2, 3), DType.BF16)
    return builder.build([builder.add("neg", x)], ["file"])


@pytest.mark.parametrize("stored", [np.float32, ml_dtypes.bfloat16])
def test_half_floats_go_through_files(tmp_path: Path, stored: type) -> None:
    values = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)
    np.savez(tmp_path / "x.npz", x=values.astype(stored))
    (found,), extra = read_arrays(tmp_path / "x.npz", half_graph())
    assert found.dtype == ml_dtypes.bfloat16 and extra == ()
    np.testing.assert_array_equal(found, values)


def test_outputs_may_have_any_name(tmp_path: Path) -> None:
    array = np.ones((2, 0, 3), ml_dtypes.bfloat16)
    write_arrays(tmp_path / "y.npz", {"file": array, "allow_pickle": np.float64(3.0)})
    with np.load(tmp_path / "y.npz", allow_pickle=False) as found:
        assert found["file"].shape == (2, 0, 3) and found["file"].dtype == np.float32
        assert found["allow_pickle"] == 3.0


def test_a_damaged_archive_is_said_to_be_so(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, x=np.ones((2, 3), np.float32))
    data = bytearray(path.read_bytes())
    data[140] ^= 0xFF  # inside the array: its checksum no longer fits
    path.write_bytes(data)
    with pytest.raises(AutofuseError, match="damaged"):
        read_arrays(path, half_graph())


def test_keys_fall_back_to_numbers_where_names_repeat() -> None:
    builder = GraphBuilder()
    values = [builder.input(name, (), DType.F32) for name in ("in1", "")]
    graph = builder.build(values)
    assert input_keys(graph) == ("in0", "in1")
    assert output_keys(graph) == ("out0", "out1")
    assert (input_keys(half_graph()), output_keys(half_graph())) == (("x",), ("file",))


def test_tables() -> None:
    assert table(["a", ">bb"], [["xyz", "1"]]) == ["a    bb", "xyz   1"]
    assert printable("a\tb\x1b[0m") == "a?b?[0m"


def test_devices() -> None:
    assert [present_device(name).name for name in ("auto", "cpu")] == ["cpu", "cpu"]
    with pytest.raises(AutofuseError, match="cannot be used: no CUDA driver"):
        present_device("cuda")
    with pytest.raises(AutofuseError, match="unknown device 'abacus'"):
        present_device("abacus")
