"""The report: what searching bought over the rules and when it pays, as one HTML file.

The report reads records only: the caller asks the database and passes the rows on.
"""

from autofuse.report.collect import by_device, collect
from autofuse.report.html import render_html
from autofuse.report.model import (
    ReportError,
    SessionReport,
    WorkloadReport,
    break_even_runs,
    pareto,
)
from autofuse.report.plan_picture import Box, Edge, plan_svg

__all__ = [
    "Box",
    "Edge",
    "ReportError",
    "SessionReport",
    "WorkloadReport",
    "break_even_runs",
    "by_device",
    "collect",
    "pareto",
    "plan_svg",
    "render_html",
]
