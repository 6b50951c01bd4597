"""Keys of bundles: what signs the header of a bundle, and what checks that.

A `Secret` is shared by those who sign and those who check (HMAC-SHA256, RFC 2104; Python's library
has it). A pair keeps the two apart (Ed25519, RFC 8032, by the package cryptography, extra
`signing`): a `SigningKey` signs and checks, its `PublicKey` only checks. A file in PEM (RFC 7468)
holds one half of a pair; any other file is a secret.
"""

from __future__ import annotations

import hmac
import os
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Protocol

from autofuse.errors import AutofuseError

LEAST_KEY_BYTES = 16
_MOST_KEY_BYTES = 1 << 16
_NEW_KEY_BYTES = 32
_PRIVATE, _PUBLIC = b"-----BEGIN PRIVATE KEY-----", b"-----BEGIN PUBLIC KEY-----"
# Signatures of both kinds have room for that many bytes; shorter ones are followed by zeros.
SIGNATURE_BYTES = 64


class BundleError(AutofuseError):
    """A bundle or a key that cannot be read, is damaged, or is not who it should be."""


class Key(Protocol):
    """Checks signatures of SIGNATURE_BYTES; `name` (16 bytes) tells keys apart and gives nothing
    away: both halves of a pair have the same."""

    @property
    def name(self) -> bytes: ...

    def sign(self, data: bytes) -> bytes:
        """The signature of `data`. Raises BundleError for a key that only checks."""
        ...

    def verifies(self, signature: bytes, data: bytes) -> bool:
        """Whether `data` was signed with this key, or with the other half of its pair."""
        ...


def _name(kind: bytes, content: bytes) -> bytes:
    return sha256(kind + b"\0" + content).digest()[:16]


@dataclass(frozen=True)
class Secret:
    """A key that both sides have."""

    secret: bytes

    @property
    def name(self) -> bytes:
        return _name(b"autofuse bundle key", self.secret)

    def sign(self, data: bytes) -> bytes:
        return hmac.digest(self.secret, data, "sha256").ljust(SIGNATURE_BYTES, b"\0")

    def verifies(self, signature: bytes, data: bytes) -> bool:
        return hmac.compare_digest(signature, self.sign(data)[: len(signature)])


@dataclass(frozen=True)
class PublicKey:
    """The half of a pair that checks: the 32 bytes of RFC 8032."""

    public: bytes

    @property
    def name(self) -> bytes:
        return _name(b"autofuse bundle pair", self.public)

    def sign(self, data: bytes) -> bytes:
        raise BundleError("a public key only checks bundles: sign them with the other half")

    def verifies(self, signature: bytes, data: bytes) -> bool:
        from cryptography.exceptions import InvalidSignature

        try:
            _ed25519().Ed25519PublicKey.from_public_bytes(self.public).verify(signature, data)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True)
class SigningKey:
    """The half of a pair that signs: the 32 bytes of RFC 8032."""

    private: bytes

    @cached_property
    def public(self) -> PublicKey:
        """The half that checks."""
        made = _ed25519().Ed25519PrivateKey.from_private_bytes(self.private)
        return PublicKey(made.public_key().public_bytes_raw())

    @property
    def name(self) -> bytes:
        return self.public.name

    def sign(self, data: bytes) -> bytes:
        made = _ed25519().Ed25519PrivateKey.from_private_bytes(self.private)
        return bytes(made.sign(data))

    def verifies(self, signature: bytes, data: bytes) -> bool:
        return self.public.verifies(signature, data)


def _ed25519() -> ModuleType:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        text = "pairs of keys need the package cryptography: pip install 'autofuse[signing]'"
        raise BundleError(text) from None
    return ed25519


def read_key(path: str | os.PathLike[str]) -> Key:
    """The key in a file. Raises BundleError, for a file too that others may read (or, if it only
    checks, that others may write)."""
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(_MOST_KEY_BYTES)
    except OSError as error:
        raise BundleError(f"cannot read the key {path}: {error.strerror}") from error
    public = content.startswith(_PUBLIC)
    if mode & (0o022 if public else 0o077):
        what, mends = ("write", "go-w") if public else ("read", "600")
        raise BundleError(f"others may {what} the key {path}: `chmod {mends} {path}` mends it")
    if public or content.startswith(_PRIVATE):
        return _from_pem(path, content)
    if len(content) < LEAST_KEY_BYTES:
        raise BundleError(f"the key {path} is too short: it needs {LEAST_KEY_BYTES} bytes or more")
    return Secret(content)


def _from_pem(path: str | os.PathLike[str], content: bytes) -> Key:
    ed25519 = _ed25519()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization

    try:
        if content.startswith(_PUBLIC):
            read = serialization.load_pem_public_key(content)
            if isinstance(read, ed25519.Ed25519PublicKey):
                return PublicKey(read.public_bytes_raw())
        else:
            own = serialization.load_pem_private_key(content, None)
            if isinstance(own, ed25519.Ed25519PrivateKey):
                return SigningKey(own.private_bytes_raw())
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise BundleError(f"{path} is not a key in PEM that can be read") from None
    raise BundleError(f"{path} is a key of another kind: bundles are signed with Ed25519")


def make_key(path: str | os.PathLike[str]) -> None:
    """A new secret in a file that only its owner may read. Raises BundleError where there is
    something of that name: no key is ever replaced."""
    _write_new(Path(path), os.urandom(_NEW_KEY_BYTES), 0o600)


def make_pair(path: str | os.PathLike[str]) -> Path:
    """A new pair: the half that signs in the file `path`, which only its owner may read, the half
    that checks in the file whose path is returned. Raises BundleError as `make_key` does."""
    ed25519 = _ed25519()
    from cryptography.hazmat.primitives import serialization

    private, public = Path(path), Path(f"{os.fspath(path)}.pub")
    if os.path.lexists(public):
        raise BundleError(f"cannot make the key {public}: File exists")
    made = ed25519.Ed25519PrivateKey.generate()
    pem = serialization.Encoding.PEM
    told = made.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    checks = made.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    _write_new(private, told, 0o600)
    _write_new(public, checks, 0o644)
    return public


def _write_new(path: Path, content: bytes, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(path, flags, mode), "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
    except OSError as error:
        raise BundleError(f"cannot make the key {path}: {error.strerror}") from error
