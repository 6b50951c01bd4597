"""Every case of a simplification."""

from __future__ import annotations

from tests.support.simplify_cases import CASES
from tests.support.simplify_guard_cases import GUARDS
from tests.support.simplify_layout_cases import LAYOUTS
from tests.support.simplify_loop_cases import LOOPS
from tests.support.simplify_moves_cases import MOVES
from tests.support.simplify_update_cases import UPDATES
from tests.support.simplify_while_cases import WHILES

EVERY = [*CASES, *GUARDS, *MOVES, *LAYOUTS, *LOOPS, *UPDATES, *WHILES]
