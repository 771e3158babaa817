from hvdtune.torch import (
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)

__all__ = [
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
]
