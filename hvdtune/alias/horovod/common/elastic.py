from collections.abc import Callable
from typing import Any, NoReturn

from hvdtune.core.rank.elastic import ObjectState, State, refuse, run

__all__ = ["ObjectState", "State", "notification_manager", "run_fn"]


def run_fn(func: Callable[..., Any], reset: Callable[[], Any]) -> Any:
    """Horovod makes its elastic decorators of it. Raises NotImplementedError."""
    return run(func)


class _NotificationManager:
    """Tells Horovod's workers of new hosts. Its methods raise NotImplementedError."""

    def init(self, *_: object, **__: object) -> NoReturn:
        refuse("notification_manager")

    register_listener = remove_listener = handle_hosts_updated = init


notification_manager = _NotificationManager()
