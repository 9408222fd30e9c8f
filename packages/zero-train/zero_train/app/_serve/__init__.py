"""A game against a trained player in the browser."""

from ._command import AbstractServe as AbstractServe
from ._service import (
    Game as Game,
    Question as Question,
    Service as Service,
)
