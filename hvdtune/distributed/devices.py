"""Groups that carry tensors on other devices than the CPU, as in `"cpu:hvdtune,cuda:nccl"`.

Torch uses a backend that is written in Python for the whole group. So this one makes the others,
and passes them the calls for their devices.
"""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any, Final, cast

import torch
from torch import distributed
from torch.distributed import ProcessGroup

from hvdtune.errors import UsageError

_CPU: Final = "cpu"
_TORCH: Final[Any] = distributed  # its type hints are incomplete


class OtherDevices:
    """The backends of one group of processes by device, each made when it is first needed.

    Thread rule: any thread; `_lock` guards the groups and is held while one is made, which waits
    for no other rank.
    """

    def __init__(self, own: str, group: ProcessGroup, store: Any, timeout_s: float) -> None:
        """
        Args:
            own: the name of the backend that `group` has for itself.
        """
        self._own = own
        self._group, self._store, self._timeout_s = group, store, timeout_s
        self._lock = threading.Lock()
        self._made: dict[str, ProcessGroup] = {}
        self._names: dict[str, str] | None = None

    @property
    def names(self) -> dict[str, str]:
        """The backend of each device except the CPU; {} until torch has the configuration."""
        if self._names is None:
            asked = _TORCH.distributed_c10d._world.pg_backend_config.get(self._group)
            if asked is None:
                return {}
            named = (pair.split(":") for pair in str(asked).split(",") if ":" in pair)
            self._names = {device: name for device, name in named if name != self._own}
        return self._names

    def group_of(self, device: str) -> ProcessGroup | None:
        """Return the group for tensors there; None if no other backend was requested.

        Raises:
            UsageError: torch has no backend of this name, or cannot make it.
        """
        name = self.names.get(device)
        if name is None:
            return None
        with self._lock:
            if device not in self._made:
                self._made[device] = self._make(device, name)
            return self._made[device]

    def shutdown(self) -> None:
        """Ends the backends that were made."""
        with self._lock:
            made, self._made = self._made, {}
        for group in made.values():
            group.shutdown()

    def _make(self, device: str, name: str) -> ProcessGroup:
        rank, size = self._group.rank(), self._group.size()
        store = _TORCH.PrefixStore(f"{device}/", self._store)
        timeout = timedelta(seconds=self._timeout_s)
        group: Any = ProcessGroup(store, rank, size)
        kinds = ProcessGroup.BackendType
        if name == distributed.Backend.NCCL and distributed.is_nccl_available():
            nccl = _TORCH.ProcessGroupNCCL
            options = nccl.Options()
            options._timeout = timeout
            kind, backend = kinds.NCCL, nccl(store, rank, size, options)
            backend._set_sequence_number_for_group()
        elif name == distributed.Backend.GLOO and distributed.is_gloo_available():
            kind, backend = kinds.GLOO, _TORCH.ProcessGroupGloo(store, rank, size, timeout)
            backend._set_sequence_number_for_group()
        elif (plugin := distributed.Backend._plugins.get(name.upper())) is not None:
            kind, backend = kinds.CUSTOM, self._by_plugin(plugin, store, timeout)
        else:
            raise UsageError(
                f"backend {name!r} for tensors on {device} is unknown to torch. Use nccl or gloo, "
                "if torch was built with them, or the backend of an installed package"
            )
        group._set_default_backend(kind)
        group._register_backend(torch.device(device), kind, backend)
        group._set_group_name(f"{self._group.group_name} of {device}")
        return cast(ProcessGroup, group)

    def _by_plugin(self, plugin: Any, store: Any, timeout: timedelta) -> Any:
        rank, size = self._group.rank(), self._group.size()
        if not plugin.extended_api:
            return plugin.creator_fn(store, rank, size, timeout)
        options = _TORCH.distributed_c10d._DistributedBackendOptions()
        options.store, options.timeout = store, timeout
        options.group_rank, options.group_size = rank, size
        options.group_id = self._group.group_name
        options.global_ranks_in_group = distributed.get_process_group_ranks(self._group)
        return plugin.creator_fn(options, None)


def device_of(values: Any) -> str:
    """Return the device type of the first tensor in these values and their lists; default "cpu"."""
    found = _first(values)
    return _CPU if found is None or found.is_cpu else found.device.type


def _first(values: Any) -> torch.Tensor | None:
    for value in values:
        if isinstance(value, torch.Tensor):
            return value
        if isinstance(value, (list, tuple)) and (found := _first(value)) is not None:
            return found
    return None
