"""Where the programs of the study come from, under which licence, and which were left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from benchmarks.fetched.npbench import EXCLUDED
from benchmarks.fetched.table import REPOSITORIES
from benchmarks.study.programs import OURS, StudyProgram, study_programs

# The licences that distributions say they have, as SPDX names them.
LICENCES: Mapping[str, str] = {
    OURS: "that of this project",
    **dict.fromkeys(
        ("basic-pitch", "blackjax", "brax", "diffrax", "distrax", "dm-haiku", "dm-pix", "equinox",
         "evosax", "flax", "jax-md", "jaxopt", "jraph", "magika", "optax", "rapidocr-onnxruntime",
         "rlax", "timm", "transformers"),
        "Apache-2.0",
    ),
    **dict.fromkeys(("ddddocr", "nudenet", "silero-vad"), "MIT"),
    **{each.name: each.licence for each in REPOSITORIES},
}  # fmt: skip


def sources_text() -> str:
    """All programs by where they come from, as a page in Markdown."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    programs = study_programs()
    places = {each.name: f"{each.url} at {each.commit[:12]}" for each in REPOSITORIES}
    packages: dict[str, list[StudyProgram]] = {}
    for program in programs.values():
        packages.setdefault(program.package, []).append(program)
    yield f"{len(programs)} programs."
    yield from ("", "| from | licence | programs | names |", "|---|---|---|---|")
    for package, those in packages.items():
        place = places.get(package, "" if package == OURS else "its distribution")
        names = ", ".join(f"`{each.name.partition(':')[2] or each.name}`" for each in those)
        source = f"{package} ({place})" if place else "the zoo"
        yield f"| {source} | {LICENCES[package]} | {len(those)} | {names} |"
    yield ""
    for name, why in EXCLUDED.items():
        yield f"* Not `npbench:{name}`: {why}."
