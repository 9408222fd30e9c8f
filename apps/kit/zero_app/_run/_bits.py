"""What compiled functions need of words of bits."""

from typing import Any

import numpy as np

from ._compiled import compiled


_U = np.uint64


@compiled
def count_bits(word: Any) -> Any:
    """How many bits of a word of 64 are set, for functions that are [`zero_app.compiled`][]."""
    # The compiler knows these lines, and makes one instruction of them.
    word = word - ((word >> _U(1)) & _U(0x5555555555555555))
    word = (word & _U(0x3333333333333333)) + ((word >> _U(2)) & _U(0x3333333333333333))
    word = (word + (word >> _U(4))) & _U(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * _U(0x0101010101010101)) >> _U(56))
