"""Games with known values, and checks that an environment satisfies its interface."""

from ._check import (
    check_environment as check_environment,
    check_shapes as check_shapes,
    EnvironmentReport as EnvironmentReport,
)
from ._games import (
    Corridor as Corridor,
    CorridorState as CorridorState,
    Nim as Nim,
    NimState as NimState,
)
