"""What search, rules and launches are worth: the study's experiments, for any one program."""

from autofuse.study.program import study
from autofuse.study.types import ProgramStudy

__all__ = ["ProgramStudy", "study"]
