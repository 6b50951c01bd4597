"""Pairs of keys, and serial numbers: who checks a bundle cannot sign one, nor serve an old one."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

from autofuse.serving.bundle import open_bundle
from autofuse.serving.container import Container, container, key_of
from autofuse.serving.keys import BundleError, PublicKey, SigningKey, make_pair, read_key
from tests.support.cli_tools import call

CONTENTS = {key_of("k", "a"): b"first"}


def pair(folder: Path) -> tuple[Path, Path]:
    private = folder / "key"
    return private, make_pair(private)


def test_one_half_signs_and_the_other_checks(tmp_path: Path) -> None:
    private, public = pair(tmp_path)
    signs, checks = read_key(private), read_key(public)
    assert isinstance(signs, SigningKey) and isinstance(checks, PublicKey)
    assert private.stat().st_mode & 0o777 == 0o600 and public.stat().st_mode & 0o777 == 0o644
    path = tmp_path / "b"
    path.write_bytes(container(CONTENTS, signs, 7))
    for key in (signs, checks):
        found = Container(path, key)
        assert found.authentic and found.get(key_of("k", "a")) == b"first"
    with pytest.raises(BundleError, match="only checks"):
        container(CONTENTS, checks)


def test_what_was_changed_or_signed_by_others_is_refused(tmp_path: Path) -> None:
    private, public = pair(tmp_path)
    (tmp_path / "other").mkdir()
    stranger = pair(tmp_path / "other")[0]
    path, checks = tmp_path / "b", read_key(public)
    path.write_bytes(container(CONTENTS, read_key(stranger), 7))
    with pytest.raises(BundleError, match="signed with another key"):
        Container(path, checks)
    data = container(CONTENTS, read_key(private), 7)
    for at in range(0, len(data), 3):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(BundleError):
            Container(path, checks).verify()


def test_an_older_bundle_is_no_answer(tmp_path: Path) -> None:
    """Replay: what was signed once stays signed, so a reader asks for a serial number."""
    private, public = pair(tmp_path)
    path = tmp_path / "b"
    path.write_bytes(container(CONTENTS, read_key(private), 7))
    with open_bundle(path, key=public, least_serial=7) as bundle:
        assert bundle.container.serial == 7
    with pytest.raises(BundleError, match="serial number 7, and 8 or more is asked for"):
        open_bundle(path, key=public, least_serial=8)


def test_keys_that_are_none_are_one_sentence(tmp_path: Path) -> None:
    private, public = pair(tmp_path)
    public.chmod(0o666)
    with pytest.raises(BundleError, match="others may write the key"):
        read_key(public)
    private.chmod(0o640)
    with pytest.raises(BundleError, match="others may read the key"):
        read_key(private)
    broken = tmp_path / "broken"
    broken.write_bytes(b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n")
    broken.chmod(0o600)
    with pytest.raises(BundleError, match="not a key in PEM"):
        read_key(broken)
    curve = generate_private_key(SECP256R1())
    broken.write_bytes(
        curve.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    with pytest.raises(BundleError, match="of another kind"):
        read_key(broken)
    with pytest.raises(BundleError, match="File exists"):
        make_pair(private)


def test_pairs_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key, path = tmp_path / "key", tmp_path / "b"
    done = call(capsys, "bundle", "key", "--pair", str(key))
    assert done.code == 0 and f"{key}.pub checks" in done.err
    path.write_bytes(container(CONTENTS, read_key(key), 7))
    refused = call(capsys, "bundle", "verify", str(path), "--key", f"{key}.pub", "--serial", "8")
    assert refused.code == 2 and "older than it should be" in refused.err
    refused = call(capsys, "bundle", "make", str(path), "--key", f"{key}.pub")
    assert refused.code == 2 and "only checks bundles" in refused.err
