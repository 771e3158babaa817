from typing import Any

from hvdtune.core.elastic.loop import run_fn
from hvdtune.core.elastic.state import ObjectState, State

__all__ = ["ObjectState", "State", "notification_manager", "run_fn"]


class _NotificationManager:
    """Horovod's listener for news of hosts. Here they come over the connection that `hvd.init()`
    makes, and reach each State without being registered: `init` has nothing to do."""

    def __init__(self) -> None:
        self._states: list[State] = []

    def init(self) -> None:
        pass

    def register_listener(self, listener: Any) -> None:
        if not isinstance(listener, State):
            raise NotImplementedError(
                "notification_manager.register_listener: only a State receives changes of hosts, "
                f"not {type(listener).__name__}; call state.check_host_updates()"
            )
        self._states.append(listener)

    def remove_listener(self, listener: Any) -> None:
        self._states = [state for state in self._states if state is not listener]

    def handle_hosts_updated(self, timestamp: float, update_res: int) -> None:
        for state in self._states:
            state.on_hosts_updated(timestamp, update_res)


notification_manager = _NotificationManager()
