"""A backend of `torch.distributed`: `init_process_group("hvdtune")`.

Importing this registers it, as does importing torch where hvdtune is installed. Tensors are on the
CPU. See docs/distributed.md.
"""

from hvdtune.distributed.registration import NAME, register

__all__ = ["NAME", "register"]

register()
