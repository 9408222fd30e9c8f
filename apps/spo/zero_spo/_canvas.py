"""Drawings for terminals with the dots of braille letters."""

import math

import numpy as np
from jaxtyping import Bool, Float
from rich.text import Text


# Unicode numbers the dots of a braille letter down its first column, then its second, and the
# lowest two last.
_BITS = np.asarray([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])
_BLANK = 0x2800


class Canvas:
    """A canvas of `columns` times `lines` letters, each two dots wide and four high.

    Coordinates are in dots: x to the right and y downwards, from the upper left corner. Each letter
    has one colour, that of the last shape drawn on it.
    """

    def __init__(self, columns: int, lines: int):
        self._dots = np.zeros((4 * lines, 2 * columns), np.bool_)
        self._colours = np.full((lines, columns), "", object)
        y, x = np.mgrid[: 4 * lines, : 2 * columns] + 0.5
        self._x: Float[np.ndarray, "height width"] = x
        self._y: Float[np.ndarray, "height width"] = y

    def stroke(
        self, start: tuple[float, float], end: tuple[float, float], colour: str, width: float = 1.0
    ) -> None:
        """Draws a straight line with round ends."""
        along = np.subtract(end, start)
        x, y = self._x - start[0], self._y - start[1]
        length = float(along @ along)
        part = np.clip((x * along[0] + y * along[1]) / max(length, 1e-9), 0.0, 1.0)
        distance = np.hypot(x - part * along[0], y - part * along[1])
        self._ink(distance <= width / 2, colour)

    def arc(
        self, centre: tuple[float, float], radius: float, begin: float, sweep: float, colour: str
    ) -> None:
        """Draws a part of a circle. Angles are in radians, counter-clockwise from upwards."""
        x, y = self._x - centre[0], self._y - centre[1]
        turned = np.remainder(math.copysign(1.0, sweep) * (np.arctan2(-x, -y) - begin), 2 * np.pi)
        on = np.abs(np.hypot(x, y) - radius) <= 0.5
        self._ink(on & (turned <= abs(sweep)), colour)

    def text(self, *, plain: bool) -> Text:
        """The drawing as text, `plain` in ASCII without colours."""
        lines, columns = self._colours.shape
        cells = self._dots.reshape(lines, 4, columns, 2).transpose(0, 2, 1, 3)
        if plain:
            rows = ["".join(map(_ascii, row)).rstrip() for row in cells]
            return Text("\n".join(rows))
        # Some fonts draw the blank braille letter, so a space takes its place.
        codes = np.sum(cells * _BITS, axis=(2, 3))
        codes = np.where(codes > 0, _BLANK + codes, ord(" "))
        return Text("\n").join(
            Text.assemble(*((chr(code), colour) for code, colour in zip(*row, strict=True)))
            for row in zip(codes, self._colours, strict=True)
        )

    def _ink(self, dots: Bool[np.ndarray, "height width"], colour: str) -> None:
        self._dots |= dots
        lines, columns = self._colours.shape
        touched = dots.reshape(lines, 4, columns, 2).any(axis=(1, 3))
        self._colours[touched] = colour


def _ascii(cell: Bool[np.ndarray, "4 2"]) -> str:
    if np.count_nonzero(cell) >= 6:
        return "#"
    return {(False, False): " ", (True, False): "'", (False, True): "."}.get(
        (bool(cell[:2].any()), bool(cell[2:].any())), ":"
    )
