"""Small exact games, and the check that an environment keeps its promises."""

from ._check import check_environment as check_environment, EnvironmentReport as EnvironmentReport
from ._corridor import Corridor as Corridor, CorridorState as CorridorState
from ._monsters_oracle import (
    MonstersEpisode as MonstersEpisode,
    MonstersOracle as MonstersOracle,
)
from ._nim import Nim as Nim, NimState as NimState
