"""Exported programs that would run code, or ask for what no file should: refused in a sentence."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autofuse.errors import AutofuseError
from autofuse.sources import load_source

torch = pytest.importorskip("torch")  # an extra of its own

MODEL, SAMPLES = "models/model.json", "data/sample_inputs/model.pt"
CONSTANTS = "data/constants/model_constants_config.json"


class Touch:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 4)
        self.register_buffer("k", torch.arange(4))

    def forward(self, x: Any) -> Any:
        y = self.linear(x)
        return {"y": y.relu() + self.k, "z": (y.sum(), torch.tensor([1.0, 2.0]))}


def exported(path: Path) -> Path:
    torch.export.save(torch.export.export(Net(), (torch.randn(2, 3),)), path)
    return path


def changed(path: Path, changes: dict[str, Callable[[bytes], bytes]]) -> Path:
    """The archive with some members made anew (or added)."""
    with zipfile.ZipFile(path) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    prefix = next(iter(held)).partition("/")[0]
    for name, change in changes.items():
        held[f"{prefix}/{name}"] = change(held.get(f"{prefix}/{name}", b""))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, data in held.items():
            archive.writestr(name, data)
    return path


def torch_bytes(value: Any) -> bytes:
    out = io.BytesIO()
    torch.save(value, out)
    return out.getvalue()


def in_model(edit: Callable[[Any], None]) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        tree = json.loads(data)
        edit(tree)
        return json.dumps(tree).encode()

    return change


def nodes(tree: Any) -> list[Any]:
    found: list[Any] = tree["graph_module"]["graph"]["nodes"]
    return found


def test_what_is_harmless_is_read(tmp_path: Path) -> None:
    _, graph = load_source(str(exported(tmp_path / "m.pt2")))
    assert graph.input_names == ("linear_weight", "linear_bias", "k", "x")


def test_sample_inputs_run_no_code(tmp_path: Path) -> None:
    path, mark = exported(tmp_path / "m.pt2"), tmp_path / "mark"
    changed(path, {SAMPLES: lambda _: torch_bytes(((Touch(mark),), {}))})
    with pytest.raises(AutofuseError, match=r"sample inputs.*posix.mkdir"):
        load_source(str(path))
    assert not mark.exists()


def test_legacy_weights_run_no_code(tmp_path: Path) -> None:
    path, mark = exported(tmp_path / "m.pt2"), tmp_path / "mark"
    changed(path, {"data/weights/model.pt": lambda _: torch_bytes({"k": Touch(mark)})})
    with pytest.raises(AutofuseError, match=r"weights.*posix.mkdir"):
        load_source(str(path))
    assert not mark.exists()


@pytest.mark.parametrize("name", ["opaque_obj_0", "custom_obj_0", "tensor_0"])
def test_pickled_constants_run_no_code(name: str, tmp_path: Path) -> None:
    path, mark = exported(tmp_path / "m.pt2"), tmp_path / "mark"

    def edit(tree: Any) -> None:
        (entry,) = tree["config"].values()
        entry |= {"path_name": name, "use_pickle": True}

    held = pickle.dumps(Touch(mark)) if name.startswith("opaque") else torch_bytes(Touch(mark))
    changed(path, {CONSTANTS: in_model(edit), f"data/constants/{name}": lambda _: held})
    with pytest.raises(AutofuseError, match="'lifted_tensor_0' is pickled"):
        load_source(str(path))
    assert not mark.exists()


def call_of(target: str, value: str) -> Callable[[Any], None]:
    def edit(tree: Any) -> None:
        text = {"name": "a", "arg": {"as_string": value}, "kind": 1}
        nodes(tree)[0] |= {"target": target, "inputs": [text]}

    return edit


@pytest.mark.parametrize(
    "target",
    ["torch.os.mkdir", "torch.ops.load_library", "torch.os.system", "_operator.call", "#os.mkdir",
     "torch.ops.aten.from_file.default", "torch.ops.aten.__class__.__base__"],
)  # fmt: skip
def test_nodes_call_nothing_but_operators(target: str, tmp_path: Path) -> None:
    path, mark = exported(tmp_path / "m.pt2"), tmp_path / "mark"
    changed(path, {MODEL: in_model(call_of(target, str(mark)))})
    with pytest.raises(AutofuseError, match="is no operator"):
        load_source(str(path))
    assert not mark.exists()


def test_expressions_are_not_evaluated(tmp_path: Path) -> None:
    path, mark = exported(tmp_path / "m.pt2"), tmp_path / "mark"
    code = f"__import__('os').mkdir({str(mark)!r})"

    def edit(tree: Any) -> None:
        sizes = tree["graph_module"]["graph"]["tensor_values"]["x"]["sizes"]
        sizes[0] = {"as_expr": {"expr_str": code, "hint": None}}

    changed(path, {MODEL: in_model(edit)})
    with pytest.raises(AutofuseError, match="sizes that are left open"):
        load_source(str(path))
    assert not mark.exists()


def test_names_are_no_code(tmp_path: Path) -> None:
    path, mark = exported(tmp_path / "m.pt2"), tmp_path / "mark"
    name = f"x=__import__('os').mkdir({str(mark)!r})"

    def edit(tree: Any) -> None:
        text = json.dumps(tree["graph_module"]).replace('"x"', json.dumps(name))
        tree["graph_module"] = json.loads(text)

    changed(path, {MODEL: in_model(edit)})
    with pytest.raises(AutofuseError, match="is no name"):
        load_source(str(path))
    assert not mark.exists()


@pytest.mark.parametrize(
    "spec",
    ['[1, {"type": "collections.defaultdict", "context": "{}", "children_spec": []}]',
     '[1, {"type": "builtins.dict", "context": "[{\\"__enum__\\": true, \\"fqn\\": \\"os:x\\"}]", '
     '"children_spec": []}]', "[" * 5000 + "]" * 5000],
)  # fmt: skip
def test_trees_of_arguments_import_nothing(spec: str, tmp_path: Path) -> None:
    path = exported(tmp_path / "m.pt2")

    def edit(tree: Any) -> None:
        tree["graph_module"]["module_call_graph"][0]["signature"]["in_spec"] = spec

    changed(path, {MODEL: in_model(edit)})
    with pytest.raises(AutofuseError, match="arguments"):
        load_source(str(path))


def test_bombs_are_refused_before_they_are_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("m/models/model.json", b" " * (1 << 26))
    with pytest.raises(AutofuseError, match="compressed"):
        load_source(str(path))
