"""Bodies of kernels that are right, wrong, slow or deadly."""

from __future__ import annotations

from autofuse.graph.builder import GraphBuilder
from autofuse.graph.types import Graph
from autofuse.ops.dtypes import DType

N = 5000
LOOP = f"for (int i = 0; i < {N}; i++)"

BODIES = {
    "good": f'_Pragma("omp parallel for") {LOOP} z[i] = x[i] + y[i];',
    "slower": f"{LOOP} z[i] = x[i] + y[i]; usleep(300);",
    "hangs": "for (volatile int k = 0;; k++);",
    "segfaults": "*(volatile int *)8 = 1;",
    "aborts": "abort();",
    "exits": 'fputs("about to leave\\n", stderr); exit(3);',
    "wrong": f"{LOOP} z[i] = x[i] + y[i]; z[77] += 0.01f;",
    "unwritten": f"for (int i = 0; i < {N} - 1; i++) z[i] = x[i] + y[i];",
    "code": "return 5;",
    "overruns": f"for (int i = 0; i <= {N}; i++) z[i] = i < {N} ? x[i] + y[i] : 0;",
    "spoils": f"{LOOP} z[i] = x[i] + y[i]; x[3] = 0;",
    "later": f"static int calls; {LOOP} z[i] = x[i] + y[i]; if (++calls > 3) z[7] += 0.01f;",
    "stops": f"static int calls; if (++calls > 3) return 0; {LOOP} z[i] = x[i] + y[i];",
    "spoils later": f"static int calls; {LOOP} z[i] = x[i] + y[i]; if (++calls > 3) x[3] = 0;",
    "overruns later": f"static int calls; {LOOP} z[i] = x[i] + y[i]; if (++calls > 3) z[{N}] = 0;",
    "reads on": f"{LOOP} z[i] = x[i] + y[i]; volatile float *p = x + {N} + 8; (void)*p;",
    "reads before": f"{LOOP} z[i] = x[i] + y[i]; volatile float *p = x - 4; (void)*p;",
    "writes on": f"{LOOP} z[i] = x[i] + y[i]; z[{N} + 8] = 0;",
    "workspace": f"{LOOP} z[i] = x[i] + y[i]; volatile char *p = (char *)ws + 128; (void)*p;",
    "ones": f"{LOOP} z[i] = x[i] + (y[i] == 1.0f ? 0 : y[i]);",
    "swaps": f"{LOOP} z[i] = x[i] + y[i]; float t = x[2]; x[2] = x[4]; x[4] = t;",
}


def graph() -> Graph:
    builder = GraphBuilder()
    x, y = (builder.input(name, (N,), DType.F32) for name in "xy")
    return builder.build([builder.add("add", x, y)])
