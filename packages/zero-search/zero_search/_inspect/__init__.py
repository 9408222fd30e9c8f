"""A search tree on the host: as rows, as text and as a drawing."""

from ._read import (
    read_tree as read_tree,
)
from ._rows import (
    TreeEdge as TreeEdge,
    TreeNode as TreeNode,
)
from ._search_tree import (
    SearchTree as SearchTree,
)
