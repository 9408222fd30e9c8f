"""Search by sequential Monte Carlo."""

from ._noise import (
    GaussianNoise as GaussianNoise,
)
from ._resampling import (
    AbstractResampleRule as AbstractResampleRule,
    AbstractResampling as AbstractResampling,
    Multinomial as Multinomial,
    ResampleBelow as ResampleBelow,
    ResampleEvery as ResampleEvery,
    Systematic as Systematic,
)
from ._search import (
    ParticleSearch as ParticleSearch,
)
