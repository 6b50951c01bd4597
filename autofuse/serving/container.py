"""The file of a bundle: byte strings under 32-byte keys, each read by itself and checked as read.

    header | contents, one after another | index, sorted by key | digests of the index's pages

The header has the digest of the page digests, these those of pages of the index, and a record of
the index that of its content (a Merkle tree of three levels): a reader checks what it reads, and
only that. No byte is outside of the tree. The file is read by position and not mapped: the page
cache is shared just the same, and a file that is cut short under its readers is an error that can
be told, where a mapping would be a SIGBUS.

A bundle is signed by HMAC-SHA256 (RFC 2104) over its header. It is what Python's library brings:
Ed25519, by which readers could check without being able to sign, would take a dependency or a
home-made curve. Who has no secret to share can name the bundle's digest instead, which is public
and as binding: it is the SHA-256 of the header.
"""

from __future__ import annotations

import hmac
import os
import struct
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from autofuse.errors import AutofuseError

MAGIC, VERSION = b"AFBUNDLE", 1
LEAST_KEY_BYTES = 16
_MOST_KEY_BYTES = 1 << 16
_NEW_KEY_BYTES = 32
# Records in a page of the index: a look-up reads and checks about log2(pages) of them.
PAGE = 64
# Magic, version, records, where the index begins, bytes in all, digest of page digests, key's name.
_HEAD = struct.Struct("<8sIQQQ32s16s")
_RECORD = struct.Struct("<32sQQ32s")
_SIGNATURE = 32
# After these comes the SHA-256 of both, so that damage shows where no key is known.
_START = _HEAD.size + _SIGNATURE + 32
_UNSIGNED = bytes(16)


class BundleError(AutofuseError):
    """A bundle that cannot be read, is damaged, or is not who it should be."""


class Record(NamedTuple):
    """Where the content of a key lies, and its SHA-256."""

    key: bytes
    offset: int
    length: int
    digest: bytes


def key_of(kind: str, name: str) -> bytes:
    """The key under which something is kept by its name; contents by digest have that as key."""
    return sha256(f"{kind}\0{name}".encode()).digest()


def read_key(path: str | os.PathLike[str]) -> bytes:
    """The secret in a file: all of its bytes. Raises BundleError."""
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                raise BundleError(f"others may read the key {path}: `chmod 600 {path}` mends it")
            secret = file.read(_MOST_KEY_BYTES)
    except OSError as error:
        raise BundleError(f"cannot read the key {path}: {error.strerror}") from error
    if len(secret) < LEAST_KEY_BYTES:
        raise BundleError(f"the key {path} is too short: it needs {LEAST_KEY_BYTES} bytes or more")
    return secret


def make_key(path: str | os.PathLike[str]) -> None:
    """A new secret in a file that only its owner may read. Raises BundleError where there is
    something of that name: no key is ever replaced."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(os.urandom(_NEW_KEY_BYTES))
    except OSError as error:
        raise BundleError(f"cannot make the key {path}: {error.strerror}") from error


def container(contents: Mapping[bytes, bytes], secret: bytes | None = None) -> bytes:
    """The file that keeps `contents`, signed if there is a `secret`; equal contents, which several
    keys may have, are kept once."""
    places: dict[bytes, tuple[int, int]] = {}
    body, records = bytearray(), bytearray()
    for key in sorted(contents):
        data = contents[key]
        digest = sha256(data).digest()
        if digest not in places:
            places[digest] = (_START + len(body), len(data))
            body += data
        records += _RECORD.pack(key, *places[digest], digest)
    size = PAGE * _RECORD.size
    pages = b"".join(
        sha256(records[at : at + size]).digest() for at in range(0, len(records), size)
    )
    index = _START + len(body)
    total = index + len(records) + len(pages)
    name = _UNSIGNED if secret is None else _name_of(secret)
    root = sha256(pages).digest()
    head = _HEAD.pack(MAGIC, VERSION, len(contents), index, total, root, name)
    signature = bytes(_SIGNATURE) if secret is None else _signed(head, secret)
    return b"".join((head, signature, sha256(head + signature).digest(), body, records, pages))


def _name_of(secret: bytes) -> bytes:
    """What tells keys apart without giving them away."""
    return sha256(b"autofuse bundle key\0" + secret).digest()[:16]


def _signed(head: bytes, secret: bytes) -> bytes:
    return hmac.digest(secret, head, "sha256")


class Container:
    """An open file of contents; safe to use from several threads, and after a fork.

    `secret` must be what it was signed with, `digest` (hexadecimal, as `digest` says it) that of
    the file; `authentic` says whether one of them was given, so that the contents are known to be
    those that were meant. Raises BundleError, in one sentence, for a file that is none, is damaged
    or is another one's."""

    def __init__(
        self, path: str | os.PathLike[str], secret: bytes | None = None, digest: str | None = None
    ) -> None:
        self.path = Path(path)
        try:
            self._file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise BundleError(f"cannot open the bundle {path}: {error.strerror}") from error
        self._pages: dict[int, bytes] = {}
        try:
            self._open(secret, digest)
        except BaseException:  # an interrupt too must not leave the file open
            self.close()
            raise

    def _open(self, secret: bytes | None, digest: str | None) -> None:
        try:
            actual = os.fstat(self._file).st_size
            head = os.pread(self._file, _START, 0)
        except OSError as error:
            raise BundleError(f"cannot read {self.path}: {error.strerror}") from error
        if head[: len(MAGIC)] != MAGIC:
            raise BundleError(f"{self.path} is no bundle of autofuse")
        if len(head) < _START:
            raise self._damaged("it is cut short")
        told, signature, check = head[: _HEAD.size], head[_HEAD.size : -32], head[-32:]
        if sha256(told + signature).digest() != check:
            raise self._damaged("its header was changed")
        _, version, self.count, self._index, size, root, name = _HEAD.unpack(told)
        if version != VERSION:
            raise BundleError(f"{self.path} is a bundle of version {version}, not {VERSION}")
        self.digest = sha256(told).hexdigest()
        self.signed = name != _UNSIGNED
        self._authenticate(told, signature, name, secret, digest)
        if size != actual:
            raise self._damaged("it is cut short" if size > actual else "something is appended")
        self._tail = self._index + self.count * _RECORD.size
        count = -(-self.count // PAGE)
        if self._index < _START or self._tail + 32 * count != size:
            raise self._damaged("its header contradicts itself")
        digests = self._read(self._tail, 32 * count)
        if sha256(digests).digest() != root:
            raise self._damaged("its index is not the one that it was made with")
        self._digests = [digests[at : at + 32] for at in range(0, len(digests), 32)]

    def _authenticate(
        self, told: bytes, signature: bytes, name: bytes, secret: bytes | None, digest: str | None
    ) -> None:
        self.authentic = secret is not None or digest is not None
        if digest is not None and not hmac.compare_digest(digest.encode(), self.digest.encode()):
            raise BundleError(f"{self.path} has digest {self.digest}, not {digest}")
        if secret is None:
            return
        if not self.signed:
            raise BundleError(f"{self.path} is not signed, and a key was given to check it with")
        if name != _name_of(secret):
            raise BundleError(f"{self.path} was signed with another key")
        if not hmac.compare_digest(signature, _signed(told, secret)):
            raise self._damaged("its signature is wrong")

    def _damaged(self, what: str) -> BundleError:
        return BundleError(f"the bundle {self.path} is damaged: {what}")

    def close(self) -> None:
        """Let go of the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def get(self, key: bytes) -> bytes | None:
        """The content of a key, None if there is none. Raises BundleError for damage on the way."""
        record = self._find(key)
        return None if record is None else self._content(record)

    def _find(self, key: bytes) -> Record | None:
        low, high = 0, len(self._digests)
        while high - low > 1:
            middle = (low + high) // 2
            if self._page(middle)[:32] <= key:
                low = middle
            else:
                high = middle
        if not self._digests:
            return None
        records = self._page(low)
        first, last = 0, len(records) // _RECORD.size
        while first < last:
            middle = (first + last) // 2
            found = records[middle * _RECORD.size :][:32]
            if found == key:
                return Record(*_RECORD.unpack_from(records, middle * _RECORD.size))
            first, last = (middle + 1, last) if found < key else (first, middle)
        return None

    def _page(self, number: int) -> bytes:
        """A page of the index, checked when it is read first."""
        if number not in self._pages:
            begin = PAGE * number
            length = min(PAGE, self.count - begin) * _RECORD.size
            data = self._read(self._index + begin * _RECORD.size, length)
            if sha256(data).digest() != self._digests[number]:
                raise self._damaged("its index was changed")
            self._pages[number] = data
        return self._pages[number]

    def _content(self, record: Record) -> bytes:
        if record.offset < _START or record.offset + record.length > self._index:
            raise self._damaged("its index points outside of it")
        data = self._read(record.offset, record.length)
        if sha256(data).digest() != record.digest:
            raise self._damaged(f"the content of {record.key.hex()[:12]} was changed")
        return data

    def _read(self, offset: int, length: int) -> bytes:
        try:
            data = os.pread(self._file, length, offset)
        except OSError as error:
            raise BundleError(f"cannot read {self.path}: {error.strerror}") from error
        if len(data) != length:
            raise self._damaged("it is cut short")
        return data

    def records(self) -> Iterator[Record]:
        """All of them, by key."""
        for number in range(len(self._digests)):
            for fields in _RECORD.iter_unpack(self._page(number)):
                yield Record(*fields)

    def verify(self) -> None:
        """Check every byte. Raises BundleError."""
        last, regions = b"", set()
        for record in self.records():
            if record.key <= last:
                raise self._damaged("its index is out of order")
            last = record.key
            self._content(record)
            regions.add((record.offset, record.length))
        end = _START
        for offset, length in sorted(regions):
            if offset != end:
                raise self._damaged("there is something between its contents")
            end += length
        if end != self._index:
            raise self._damaged("there is something behind its contents")
