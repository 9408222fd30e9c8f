"""mctx's functions and types, searched by zero-search: change one import.

Everything that mctx exports is here; the policies below take mctx's place.
"""

# Whatever the installed mctx calls public, but for what is replaced below.
from mctx import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]

from ._policies import (
    alphazero_policy as alphazero_policy,
    gumbel_muzero_policy as gumbel_muzero_policy,
    muzero_policy as muzero_policy,
)
from ._trees import get_subtree as get_subtree, reset_search_tree as reset_search_tree
