"""A search tree on the host: as rows, as text and as a drawing."""

from ._search_tree import (
    read_tree as read_tree,
    SearchTree as SearchTree,
    TreeEdge as TreeEdge,
    TreeNode as TreeNode,
)
