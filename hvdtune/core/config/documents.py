"""JSON documents of platforms that describe the place of a host. Pure.

Such a variable may be set where only one process runs, as on the host of a notebook.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

Environ = Mapping[str, str]
_SHOWN: Final = 60


def document(env: Environ, name: str) -> Any:
    """Return the JSON of a variable, None if it is not set. Raises ValueError naming it."""
    try:
        return json.loads(env.get(name) or "null")
    except ValueError:
        raise ValueError(f"{name} is not JSON: {env[name][:_SHOWN]}") from None


def sagemaker(env: Environ) -> dict[str, Any] | None:
    """Return rank, size and hosts, None for a process alone. Raises ValueError with a sentence.

    SageMaker lists hosts in alphabetical order.
    """
    name = "SM_HOSTS" if env.get("SM_HOSTS") else "SM_RESOURCE_CONFIG"
    if not env.get(name):
        return None
    whole = document(env, "SM_RESOURCE_CONFIG")
    whole = whole if isinstance(whole, dict) else {}
    listed = document(env, "SM_HOSTS") if name == "SM_HOSTS" else whole.get("hosts")
    hosts = sorted(str(host).lower() for host in listed) if isinstance(listed, list) else []
    current = str(env.get("SM_CURRENT_HOST") or whole.get("current_host") or "").lower()
    if not current and len(hosts) == 1:
        return None
    if not hosts or len({*hosts}) < len(hosts):
        raise ValueError(f"{name} is not a list of different hosts: {env[name][:_SHOWN]}")
    if current not in hosts:
        fault = f"is {current}, which is not in" if current else "is not set, but required by"
        raise ValueError(f"SM_CURRENT_HOST {fault} {name} ({', '.join(hosts)})")
    return {"rank": hosts.index(current), "size": len(hosts), "hosts": tuple(hosts)}


def cluster(
    env: Environ, name: str, kinds: tuple[str, ...], others: tuple[str, ...]
) -> dict[str, Any] | None:
    """Return rank, size and hosts of this task, None for a process alone.

    Args:
        kinds: types of the tasks that train together, in their order.
        others: types of tasks that do not train, such as a parameter server.

    Raises ValueError with a sentence.
    """
    if not env.get(name):
        return None
    whole = document(env, name)
    listed = whole.get("cluster", {}) if isinstance(whole, dict) else None
    if not isinstance(listed, dict) or not all(isinstance(e, list | dict) for e in listed.values()):
        raise ValueError(f"{name} is not an object with a cluster of tasks: {env[name][:_SHOWN]}")
    given = whole.get("task")
    given = given if isinstance(given, dict) else {}
    kind, number = str(given.get("type", "")), str(given.get("index", ""))
    order = (*kinds, *others)
    tasks = {
        (each, index): str(address)
        for each in sorted(listed, key=lambda each: order.index(each) if each in order else 99)
        for index, address in _numbered(listed[each])
    }
    unknown = {each for each in (kind, *(task[0] for task in tasks)) if each and each not in order}
    if unknown and len(tasks) > 1:
        raise ValueError(
            f"{name} has a task of type {min(unknown)}, which is not one of {', '.join(order)}"
        )
    own = f"{kind} {number}".strip()
    is_listed = (kind, number) in tasks
    if not is_listed and kind not in others:
        known = ", ".join(" ".join(task) for task in tasks) or "empty"
        is_several = len(tasks) > 1 if not (kind and number) else tasks or number != "0"
        if is_several:
            raise ValueError(f"{name} has task {own or '(not set)'}, but its cluster is {known}")
    if unknown or not is_listed or kind in others:
        return None
    training = {task: tasks[task] for task in tasks if task[0] in kinds}
    hosts = tuple(address.rpartition(":")[0] or address for address in training.values())
    return {"rank": [*training].index((kind, number)), "size": len(hosts), "hosts": hosts}


def _numbered(addresses: Any) -> list[tuple[str, Any]]:
    """Return the addresses of a list, or of an object by number, as TensorFlow accepts."""
    if isinstance(addresses, dict):
        return sorted(addresses.items(), key=lambda each: (len(each[0]), each[0]))
    return [(str(number), address) for number, address in enumerate(addresses)]
