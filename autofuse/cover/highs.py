"""The little of HiGHS that is used here: rows that are all `>=`, columns between 0 and a bound.

highspy and not scipy.optimize, which has the same HiGHS inside: planning solves the same relaxation
again and again with a few more rows or a few changed costs, and only highspy can keep it between
solves (12,921 columns, 1,662 rows, 8 costs changed: 0.05 s, against 0.43 s from scratch).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import highspy
import numpy as np

from autofuse.cover.rows import Floats, Rows
from autofuse.errors import AutofuseError


class OutOfTimeError(AutofuseError):
    """The solver was stopped before it had any answer."""


def _model(rows: Rows, costs: Floats, upper: Floats, integers: int) -> highspy.HighsLp:
    lp = highspy.HighsLp()
    lp.num_row_, lp.num_col_ = len(rows), rows.width
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = costs, np.zeros(len(costs)), upper
    lp.row_lower_, lp.row_upper_ = rows.lower, np.full(len(rows.lower), highspy.kHighsInf)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_, lp.a_matrix_.index_ = rows.starts, rows.columns
    lp.a_matrix_.value_ = rows.values
    if integers:
        kinds = [highspy.HighsVarType.kInteger] * integers
        kinds += [highspy.HighsVarType.kContinuous] * (len(costs) - integers)
        lp.integrality_ = kinds
    return lp


def _silent() -> highspy.Highs:
    solver = highspy.Highs()  # type: ignore[no-untyped-call]  # highspy has no types
    solver.silent()
    return solver


def _run(solver: highspy.Highs, left_s: float) -> None:
    """Run for at most so many seconds: the solver's own clock goes on from run to run."""
    limit = math.inf if math.isinf(left_s) else solver.getRunTime() + max(left_s, 0.0)
    solver.setOptionValue("time_limit", limit)
    solver.run()


class Relaxation:
    """A linear program kept between solves, so that each starts from the last one's basis."""

    def __init__(self, rows: Rows, columns: int) -> None:
        self._columns = np.arange(columns, dtype=np.int32)
        self._solver = _silent()
        self._solver.passModel(_model(rows, np.zeros(columns), np.ones(columns), 0))

    def add(self, rows: Rows) -> None:
        self._solver.addRows(
            len(rows),
            rows.lower,
            np.full(len(rows), highspy.kHighsInf),
            len(rows.values),
            rows.starts[:-1],
            rows.columns,
            rows.values,
        )

    def solve(
        self, costs: Floats, upper: Floats, left_s: float = math.inf
    ) -> tuple[Floats, Floats] | None:
        """The solution and the row duals; None where there is no solution. Raises OutOfTimeError
        after `left_s` seconds."""
        columns, solver = self._columns, self._solver
        solver.changeColsCost(len(columns), columns, costs)
        solver.changeColsBounds(len(columns), columns, np.zeros(len(columns)), upper)
        _run(solver, left_s)
        status = solver.getModelStatus()
        if status == highspy.HighsModelStatus.kTimeLimit:
            raise OutOfTimeError("the linear program was not solved in time")
        if status != highspy.HighsModelStatus.kOptimal:
            return None
        solution = solver.getSolution()
        return np.array(solution.col_value), np.array(solution.row_dual)


@dataclass(frozen=True, slots=True)
class Integral:
    """A solution, a bound on the value of any, and whether there was time to prove it the best."""

    x: Floats
    bound: float
    proved: bool


def solve_integer(
    rows: Rows, costs: Floats, integers: int, left_s: float = math.inf, nodes: int | None = None,
    gap: float = 0.0,
) -> Integral | None:  # fmt: skip
    """A best solution with the first `integers` columns 0 or 1, one that may be worse by the
    fraction `gap`, or the best found in `left_s` seconds or so many `nodes` of the search tree,
    which take their time. None where there is no solution; raises OutOfTimeError where none was
    found in time."""
    solver = _silent()
    solver.setOptionValue("mip_rel_gap", gap)
    solver.setOptionValue("mip_abs_gap", 1e-9)
    if nodes is not None:
        solver.setOptionValue("mip_max_nodes", nodes)
    solver.passModel(_model(rows, costs, np.ones(len(costs)), integers))
    _run(solver, left_s)
    status, info = solver.getModelStatus(), solver.getInfo()
    stopped = (highspy.HighsModelStatus.kTimeLimit, highspy.HighsModelStatus.kSolutionLimit)
    late = status in stopped
    if late and info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        raise OutOfTimeError("the 0/1 program was not solved in time")
    if not late and status != highspy.HighsModelStatus.kOptimal:
        return None
    x = np.array(solver.getSolution().col_value)
    return Integral(x, float(info.mip_dual_bound), not late)
