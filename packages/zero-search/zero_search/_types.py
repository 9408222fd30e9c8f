"""The shapes that most signatures share: one entry a row, where a row is a game or a node."""

from typing import TypeVar

from jaxtyping import Array, Bool, Float, Int, Key


Node = TypeVar("Node")

Keys = Key[Array, " batch"]
Ints = Int[Array, " batch"]
Floats = Float[Array, " batch"]
Bools = Bool[Array, " batch"]
PerAction = Float[Array, "batch actions"]

# What a model's `predict` and `step` return: `(logits, value)`, `(next_node, reward, discount,
# last)`.
Prediction = tuple[PerAction, Floats]
Stepped = tuple[Node, Floats, Floats, Bools]
