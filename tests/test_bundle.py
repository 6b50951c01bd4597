"""The file of a bundle: what is in it is found, and whatever was done to it is seen."""

from __future__ import annotations

import hashlib
import os
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autofuse.errors import AutofuseError
from autofuse.serving.bundle import KEY_VARIABLE, Bundle, open_bundle
from autofuse.serving.container import Container, container, key_of
from autofuse.serving.entries import Entry, StoredElement, StoredType, Variant, entry_bytes
from autofuse.serving.keys import BundleError, Key, Secret
from autofuse.serving.make import Contents
from benchmarks.serving import bench_tampered, tampered
from tests.support.cli_tools import call, refused

SECRET, OTHER = b"k" * 32, b"o" * 32
GOLDENS = Path(__file__).parent / "goldens"
KEYS = st.binary(min_size=32, max_size=32)


def variant(model: str = "m") -> Variant:
    must, stale = (("cores", "2"), ("model", model)), (("kernel", "6"),)
    timing = {"median_us": 2.5}
    return Variant("cpu", must, stale, "{}", "d" * 32, "toy", 1, timing, None, "", "0")


def filled(workloads: int = 3) -> Contents:
    """A bundle of made-up plans."""
    contents = Contents("0.0", "2026-01-01T00:00:00+00:00")
    for number in range(workloads):
        digest = hashlib.sha256(str(number).encode()).hexdigest()[:32]
        entry = Entry(digest, f"w{number}", None, (variant(), variant("n")))
        contents.add(entry, [f"written {number}"])
    return contents


def written(path: Path, key: Key | None = None, workloads: int = 3, serial: int = 0) -> Path:
    path.write_bytes(filled(workloads).finished(key, serial))
    return path


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(contents=st.dictionaries(KEYS, st.binary(max_size=40), max_size=200), absent=KEYS)
def test_every_key_is_found_and_no_other(
    tmp_path: Path, contents: dict[bytes, bytes], absent: bytes
) -> None:
    path = tmp_path / "c"
    path.write_bytes(container(contents, Secret(SECRET)))
    found = Container(path, Secret(SECRET))
    found.verify()
    assert {key: found.get(key) for key in contents} == contents
    assert found.get(absent) == contents.get(absent)
    assert [record.key for record in found.records()] == sorted(contents)
    found.close()


def test_equal_contents_are_kept_once() -> None:
    same, apart = (
        {key_of("k", str(n)): b"x" * (1000 + n * step) for n in range(4)} for step in (0, 1)
    )
    assert len(container(same)) < len(container(apart)) - 2900


def test_whatever_is_changed_is_refused_with_the_key_and_without(tmp_path: Path) -> None:
    data = filled(70).finished(Secret(SECRET))
    found = bench_tampered(data, tmp_path, Secret(SECRET), 400)
    assert all(yes == tried == 100 for yes, tried in found.values()) and len(found) == 4
    kinds = {kind for kind, changed in tampered(data, 8, 1) if changed != data}
    assert kinds == {"flip", "cut", "append", "swap"}


def test_every_byte_counts(tmp_path: Path) -> None:
    data = container({key_of("k", "a"): b"first", key_of("k", "b"): b"second"}, Secret(SECRET))
    path = tmp_path / "c"
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        with pytest.raises(BundleError):
            Container(path).verify()


def test_a_change_is_seen_by_who_reads_it_and_by_nobody_else(tmp_path: Path) -> None:
    keys = [key_of("k", str(n)) for n in range(300)]
    data = container({key: key * 4 for key in keys})
    place = data.index(keys[7] * 4)
    path = tmp_path / "c"
    path.write_bytes(data[:place] + b"\0" + data[place + 1 :])
    found = Container(path)
    assert found.get(keys[8]) == keys[8] * 4
    with pytest.raises(BundleError, match="was changed"):
        found.get(keys[7])


def test_a_file_that_is_cut_short_under_its_reader_is_an_error(tmp_path: Path) -> None:
    path = written(tmp_path / "b")
    bundle = open_bundle(path)
    os.truncate(path, 400)
    with pytest.raises(BundleError, match="cut short"):
        list(bundle.entries())


@pytest.mark.parametrize(
    ("signed", "given", "words"),
    [
        (SECRET, OTHER, "signed with another key"),
        (None, SECRET, "is not signed"),
        (SECRET, b"short", "too short"),
    ],
)
def test_a_foreign_bundle_is_refused(
    tmp_path: Path, signed: bytes | None, given: bytes, words: str
) -> None:
    path, key = written(tmp_path / "b", signed and Secret(signed)), tmp_path / "key"
    key.write_bytes(given)
    key.chmod(0o600)
    with pytest.raises(AutofuseError, match=words):
        open_bundle(path, key=key)


def test_a_forged_bundle_needs_the_key(tmp_path: Path) -> None:
    """Who makes a whole bundle anew under the name of a key cannot sign it."""
    honest, forged = filled().finished(Secret(SECRET)), bytearray(filled(4).finished(Secret(OTHER)))
    name = slice(76, 92)
    forged[name] = honest[name]
    forged[156:188] = hashlib.sha256(forged[:156]).digest()
    path = tmp_path / "b"
    path.write_bytes(forged)
    assert Container(path).count == 13  # without the key nothing is wrong with it
    with pytest.raises(BundleError, match="signature is wrong"):
        Container(path, Secret(SECRET))


def test_a_digest_names_one_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    path = written(tmp_path / "b")
    with open_bundle(path) as found:
        digest = found.digest
        assert not found.container.authentic
    with open_bundle(path, digest=digest) as found:
        assert found.container.authentic
    written(path, workloads=4)
    with pytest.raises(BundleError, match="has digest"):
        open_bundle(path, digest=digest)


def test_the_key_of_the_environment_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "key"
    key.write_bytes(SECRET)
    key.chmod(0o600)
    monkeypatch.setenv(KEY_VARIABLE, str(key))
    assert open_bundle(written(tmp_path / "b", Secret(SECRET))).container.authentic
    with pytest.raises(BundleError, match="another key"):
        open_bundle(written(tmp_path / "c", Secret(OTHER)))


def test_entries_are_found_by_digest_name_and_as_written(tmp_path: Path) -> None:
    contents = filled()
    again = Entry("f" * 32, "w0", None, (variant(),))
    contents.add(again)
    path = tmp_path / "b"
    path.write_bytes(contents.finished(None))
    bundle = open_bundle(path)
    assert bundle.verify() == 4
    assert bundle.workload("f" * 32) == again
    assert bundle.named("w1") == bundle.written("written 1") is not None
    assert bundle.named("w0") is None, "two workloads have this name"
    assert bundle.workload("0" * 32) is None


def test_an_entry_of_another_form_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "b"
    for data in (b"[]", b"{", entry_bytes(Entry("a", "b", None, ()))[:-1] + b',"x":1}'):
        path.write_bytes(container({key_of("workload", "a"): data}))
        bundle = Bundle(Container(path))
        if data.startswith(b'{"n'):
            assert bundle.workload("a") == Entry("a", "b", None, ())
        else:
            with pytest.raises(BundleError, match="of another form"):
                bundle.workload("a")


def test_element_types_of_ml_dtypes_are_known() -> None:
    narrow = StoredType((3, 5), StoredElement("bfloat16"))
    assert narrow.nbytes == 30 and str(narrow.dtype.numpy) == "bfloat16"


def test_the_command_line_refuses_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "b", Secret(SECRET))
    told = call(capsys, "bundle", "verify", path, "--format", "json")
    assert told.json["workloads"] == 3 and told.json["signed"] and not told.json["authentic"]
    rows = call(capsys, "bundle", "show", path).out
    assert "w0" in rows and "2.5" in rows
    data = bytearray(path.read_bytes())
    data[random.Random(0).randrange(len(data))] ^= 1
    path.write_bytes(data)
    refused(call(capsys, "bundle", "verify", path), "is damaged")
    refused(call(capsys, "bundle", "show", tmp_path / "none"), "cannot open")
    path.write_bytes(b"PK\3\4 not one of ours")
    refused(call(capsys, "bundle", "verify", path), "is no bundle of autofuse")
    refused(call(capsys, "bundle", "make", path, "--db", tmp_path / "no.db"), "no such database")


def test_bundles_of_version_1_are_read() -> None:
    """`goldens/bundle-1` was written by the first version of the format."""
    path, key = GOLDENS / "bundle-1", Secret(b"sixteen bytes or more")
    found = Container(path, key)
    found.verify()
    assert (found.get(key_of("k", "a")), found.get(key_of("k", "b"))) == (b"first", b"second")
    assert found.serial == 0 and found.authentic
    with pytest.raises(BundleError, match="signed with another key"):
        Container(path, Secret(OTHER))
