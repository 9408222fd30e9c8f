"""Small exact games, and the check that an environment keeps its promises."""

from ._corridor import Corridor as Corridor, CorridorState as CorridorState
from ._nim import Nim as Nim, NimState as NimState
