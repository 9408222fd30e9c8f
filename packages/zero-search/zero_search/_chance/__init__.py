"""Search over decisions and dice."""

from ._expected import (
    ExpectedModel as ExpectedModel,
)
from ._model import (
    AbstractAfterstateModel as AbstractAfterstateModel,
    AbstractChanceModel as AbstractChanceModel,
)
from ._search import (
    ChanceSearch as ChanceSearch,
)
