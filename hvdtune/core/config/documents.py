"""The JSON documents in which platforms tell a process its host among others. Pure.

Such a variable may be there although nobody has started several processes, as on the host of a
notebook. So what is no document of several processes is none at all here; whether it is a mistake
is another question, which `sagemaker_fault` and `cluster_fault` answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

Environ = Mapping[str, str]
_SHOWN: Final = 60


def document(env: Environ, name: str) -> Any:
    """The JSON of a variable, None where there is none."""
    try:
        return json.loads(env.get(name) or "null")
    except ValueError:
        return None


def sagemaker(env: Environ) -> tuple[str, tuple[str, ...]]:
    """Return this host and all hosts, in lower case; "" and () if they are not set.

    SageMaker lists them in alphabetical order.
    """
    whole = document(env, "SM_RESOURCE_CONFIG")
    whole = whole if isinstance(whole, dict) else {}
    hosts = document(env, "SM_HOSTS") if env.get("SM_HOSTS") else whole.get("hosts")
    current = env.get("SM_CURRENT_HOST") or whole.get("current_host") or ""
    names = hosts if isinstance(hosts, list) else ()
    return str(current).lower(), tuple(sorted(str(name).lower() for name in names))


def sagemaker_fault(env: Environ) -> str:
    """What cannot be in SageMaker's variables, "" for nothing."""
    listing = "SM_HOSTS" if env.get("SM_HOSTS") else "SM_RESOURCE_CONFIG"
    if not env.get(listing):
        return ""
    if document(env, listing) is None:
        return _not_json(env, listing)
    current, hosts = sagemaker(env)
    if not hosts:
        return f"{listing} lists no hosts: {env[listing][:_SHOWN]}"
    if len({*hosts}) < len(hosts):
        return f"{listing} lists a host twice: {env[listing][:_SHOWN]}"
    if not current:
        several = f"{listing} lists {len(hosts)} hosts, but SM_CURRENT_HOST is not set"
        return several if len(hosts) > 1 else ""
    own = "SM_CURRENT_HOST" if env.get("SM_CURRENT_HOST") else "the current host"
    return "" if current in hosts else f"{own} {current} is none of {listing}, {', '.join(hosts)}"


def cluster(
    env: Environ, name: str, kinds: tuple[str, ...], others: tuple[str, ...]
) -> tuple[int, tuple[str, ...]] | None:
    """This task's number among those that train together, and the hosts of all; None for another.

    Args:
        kinds: of the tasks that train together, in their order.
        others: kinds of tasks that take no part, as a parameter server.
    """
    listed, own = _tasks(env, name, kinds + others), _own_task(env, name)
    if any(kind not in kinds and kind not in others for kind, _ in listed):
        return None
    addresses = {task: listed[task] for task in listed if task[0] in kinds}
    if own not in addresses:
        return None
    hosts = (address.rpartition(":")[0] or address for address in addresses.values())
    return [*addresses].index(own), tuple(hosts)


def cluster_fault(env: Environ, name: str, kinds: tuple[str, ...], others: tuple[str, ...]) -> str:
    """What cannot be in a variable that names a cluster and a task of it, "" for nothing.

    The arguments are those of `cluster`.
    """
    if not env.get(name):
        return ""
    whole = document(env, name)
    if whole is None:
        return _not_json(env, name)
    if not isinstance(whole, dict) or not isinstance(whole.get("cluster", {}), dict):
        return f"{name} is not an object with a cluster: {env[name][:_SHOWN]}"
    for kind, addresses in whole.get("cluster", {}).items():
        if not isinstance(addresses, list | dict):
            return f"{name} has no list of the tasks of type {kind}, but {addresses!r}"
    listed, own = _tasks(env, name, kinds + others), _own_task(env, name)
    kind, number = own or ("", "")
    for unknown in (kind, *(kind for kind, _ in listed)):
        if unknown and unknown not in kinds + others and len(listed) > 1:
            return (
                f"{name} has a task of type {unknown}, which is none of {', '.join(kinds + others)}"
            )
    if own in listed or kind in others:
        return ""
    if not listed:
        said = f"{name} says that this process is {kind} {number}, but has no cluster"
        return said if number not in ("", "0") else ""
    known = ", ".join(f"{kind} {number}" for kind, number in listed)
    if not kind or number == "":
        several = f"{name} names the tasks {known}, but not which of them this process is"
        return several if len(listed) > 1 else ""
    return f"{name} says that this process is {kind} {number}, but its cluster has only {known}"


def _tasks(env: Environ, name: str, first: tuple[str, ...]) -> dict[tuple[str, str], str]:
    """The addresses of all tasks of a cluster, by type and number, those of some types first."""
    whole = document(env, name)
    listed = whole.get("cluster") if isinstance(whole, dict) else None
    if not isinstance(listed, dict) or not all(isinstance(e, list | dict) for e in listed.values()):
        return {}
    ordered = {kind: listed[kind] for kind in (*first, *listed) if kind in listed}
    return {
        (kind, number): str(address)
        for kind, addresses in ordered.items()
        for number, address in _numbered(addresses)
    }


def _numbered(addresses: Any) -> list[tuple[str, Any]]:
    """The addresses of a list, or of an object by their numbers, as TensorFlow takes them, too."""
    if isinstance(addresses, dict):
        return sorted(addresses.items(), key=lambda each: (len(each[0]), each[0]))
    return [(str(number), address) for number, address in enumerate(addresses)]


def _own_task(env: Environ, name: str) -> tuple[str, str] | None:
    whole = document(env, name)
    task = whole.get("task") if isinstance(whole, dict) else None
    if not isinstance(task, dict):
        return None
    return str(task.get("type", "")), str(task.get("index", ""))


def _not_json(env: Environ, name: str) -> str:
    return f"{name} is not JSON: {env[name][:_SHOWN]}"
