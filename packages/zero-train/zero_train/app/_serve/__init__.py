"""A game against a trained player in the browser."""

from ._command import AbstractServe as AbstractServe
from ._service import (
    Page as Page,
    Question as Question,
    Service as Service,
)
