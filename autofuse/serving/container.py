"""The file of a bundle: byte strings under 32-byte keys, each read by itself and checked as read.

    header | contents, one after another | index, sorted by key | digests of the index's pages

The header has the digest of the page digests, these those of pages of the index, and a record of
the index that of its content (a Merkle tree of three levels): a reader checks what it reads, and
only that. No byte is outside of the tree. The file is read by position and not mapped: the page
cache is shared just the same, and a file that is cut short under its readers is an error that can
be told, where a mapping would be a SIGBUS.

A bundle may be signed: the signature of a `Key` (`autofuse/serving/keys.py`) over its header. Who
has no key can name the bundle's digest instead, which is public and as binding: it is the SHA-256
of the header. The header also has a serial number, by which a reader can refuse a bundle that is
older than one it knows: an old bundle that was signed stays signed (replay).

Version 1 had no serial number (it counts as 0) and 32 bytes of signature; such files are read.
"""

from __future__ import annotations

import hmac
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from autofuse.serving.keys import SIGNATURE_BYTES, BundleError, Key

MAGIC = b"AFBUNDLE"
# A serial number of more would not fit the header.
MOST_SERIAL = (1 << 64) - 1
# Records in a page of the index: a look-up reads and checks about log2(pages) of them.
PAGE = 64
_RECORD = struct.Struct("<32sQQ32s")
_UNSIGNED = bytes(16)


@dataclass(frozen=True, slots=True)
class _Format:
    """How a version of the file begins. `head`: magic, version, records, where the index begins,
    bytes in all, serial number (if `serial`), digest of page digests, key's name. Then come
    `signature` bytes, and the SHA-256 of both, so that damage shows where no key is known."""

    head: struct.Struct
    signature: int
    serial: bool

    @property
    def start(self) -> int:
        """Where contents begin."""
        return self.head.size + self.signature + 32


_FORMATS = {
    1: _Format(struct.Struct("<8sIQQQ32s16s"), 32, serial=False),
    2: _Format(struct.Struct("<8sIQQQQ32s16s"), SIGNATURE_BYTES, serial=True),
}
VERSION = max(_FORMATS)
_LONGEST = max(each.start for each in _FORMATS.values())
_SHORTEST = len(MAGIC) + 4


class Record(NamedTuple):
    """Where the content of a key lies, and its SHA-256."""

    key: bytes
    offset: int
    length: int
    digest: bytes


def key_of(kind: str, name: str) -> bytes:
    """The key under which something is kept by its name; contents by digest have that as key."""
    return sha256(f"{kind}\0{name}".encode()).digest()


def container(contents: Mapping[bytes, bytes], key: Key | None = None, serial: int = 0) -> bytes:
    """The file that keeps `contents`, signed if there is a `key`; equal contents, which several
    keys may have, are kept once. Raises BundleError for a key that only checks."""
    form = _FORMATS[VERSION]
    places: dict[bytes, tuple[int, int]] = {}
    body, records = bytearray(), bytearray()
    for name in sorted(contents):
        data = contents[name]
        digest = sha256(data).digest()
        if digest not in places:
            places[digest] = (form.start + len(body), len(data))
            body += data
        records += _RECORD.pack(name, *places[digest], digest)
    size = PAGE * _RECORD.size
    pages = b"".join(
        sha256(records[at : at + size]).digest() for at in range(0, len(records), size)
    )
    index = form.start + len(body)
    total = index + len(records) + len(pages)
    head = form.head.pack(
        MAGIC, VERSION, len(contents), index, total, serial, sha256(pages).digest(),
        _UNSIGNED if key is None else key.name,
    )  # fmt: skip
    signature = bytes(form.signature) if key is None else key.sign(head)
    return b"".join((head, signature, sha256(head + signature).digest(), body, records, pages))


class Container:
    """An open file of contents; safe to use from several threads, and after a fork.

    `key` must be what it was signed with or the other half of that pair, `digest` (hexadecimal, as
    `digest` says it) that of the file, `least_serial` no more than its serial number; `authentic`
    says whether key or digest was given, so that the contents are known to be those that were
    meant. Raises BundleError, in one sentence, for a file that is none, is damaged, is older or is
    another one's."""

    def __init__(
        self, path: str | os.PathLike[str], key: Key | None = None, digest: str | None = None,
        least_serial: int = 0,
    ) -> None:  # fmt: skip
        self.path = Path(path)
        try:
            self._file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise BundleError(f"cannot open the bundle {path}: {error.strerror}") from error
        self._pages: dict[int, bytes] = {}
        try:
            self._open(key, digest)
            if self.serial < least_serial:
                raise BundleError(
                    f"{path} has serial number {self.serial}, and {least_serial} or more is asked "
                    "for: it is older than it should be"
                )
        except BaseException:  # an interrupt too must not leave the file open
            self.close()
            raise

    def _open(self, key: Key | None, digest: str | None) -> None:
        try:
            actual = os.fstat(self._file).st_size
            head = os.pread(self._file, _LONGEST, 0)
        except OSError as error:
            raise BundleError(f"cannot read {self.path}: {error.strerror}") from error
        if head[: len(MAGIC)] != MAGIC:
            raise BundleError(f"{self.path} is no bundle of autofuse")
        if len(head) < _SHORTEST:
            raise self._damaged("it is cut short")
        version = int.from_bytes(head[len(MAGIC) : _SHORTEST], "little")
        form = _FORMATS.get(version)
        if form is None:
            raise BundleError(
                f"{self.path} is a bundle of version {version}, not of {VERSION} or older"
            )
        if len(head) < form.start:
            raise self._damaged("it is cut short")
        self._start = form.start
        told, check = head[: form.head.size], head[form.start - 32 : form.start]
        signature = head[form.head.size : form.start - 32]
        if sha256(told + signature).digest() != check:
            raise self._damaged("its header was changed")
        _, _, self.count, self._index, size, *serial, root, name = form.head.unpack(told)
        self.serial: int = serial[0] if form.serial else 0
        self.digest = sha256(told).hexdigest()
        self.signed = name != _UNSIGNED
        self._authenticate(told, signature, name, key, digest)
        if size != actual:
            raise self._damaged("it is cut short" if size > actual else "something is appended")
        self._tail = self._index + self.count * _RECORD.size
        count = -(-self.count // PAGE)
        if self._index < self._start or self._tail + 32 * count != size:
            raise self._damaged("its header contradicts itself")
        digests = self._read(self._tail, 32 * count)
        if sha256(digests).digest() != root:
            raise self._damaged("its index is not the one that it was made with")
        self._digests = [digests[at : at + 32] for at in range(0, len(digests), 32)]

    def _authenticate(
        self, told: bytes, signature: bytes, name: bytes, key: Key | None, digest: str | None
    ) -> None:
        self.authentic = key is not None or digest is not None
        if digest is not None and not hmac.compare_digest(digest.encode(), self.digest.encode()):
            raise BundleError(f"{self.path} has digest {self.digest}, not {digest}")
        if key is None:
            return
        if not self.signed:
            raise BundleError(f"{self.path} is not signed, and a key was given to check it with")
        if name != key.name:
            raise BundleError(f"{self.path} was signed with another key")
        if not key.verifies(signature, told):
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
        if record.offset < self._start or record.offset + record.length > self._index:
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
        end = self._start
        for offset, length in sorted(regions):
            if offset != end:
                raise self._damaged("there is something between its contents")
            end += length
        if end != self._index:
            raise self._damaged("there is something behind its contents")
