from collections.abc import Callable
from typing import Any

from hvdtune.core.elastic.loop import run_fn
from hvdtune.core.elastic.state import ObjectState, State

__all__ = ["ObjectState", "State", "notification_manager", "run_fn"]


class _NotificationManager:
    """Horovod's listener for news of hosts. Here they come over the connection that `hvd.init()`
    makes, and `state.check_host_updates()` looks for them: `init` has nothing to do."""

    def init(self) -> None:
        pass

    def register_listener(self, listener: Callable[..., Any]) -> None:
        raise NotImplementedError(
            "notification_manager.register_listener: news of hosts reach a State only; call "
            "state.check_host_updates()"
        )

    remove_listener = handle_hosts_updated = register_listener


notification_manager = _NotificationManager()
