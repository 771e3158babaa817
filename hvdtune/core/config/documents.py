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
    """This host and all hosts, "" and () where they are not told.

    SageMaker lists them in alphabetical order.
    """
    whole = document(env, "SM_RESOURCE_CONFIG")
    whole = whole if isinstance(whole, dict) else {}
    hosts = document(env, "SM_HOSTS") if env.get("SM_HOSTS") else whole.get("hosts")
    current = env.get("SM_CURRENT_HOST") or whole.get("current_host") or ""
    return str(current), tuple(sorted(map(str, hosts if isinstance(hosts, list) else ())))


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
    if not current:
        several = f"{listing} lists {len(hosts)} hosts, but SM_CURRENT_HOST is not set"
        return several if len(hosts) > 1 else ""
    own = "SM_CURRENT_HOST" if env.get("SM_CURRENT_HOST") else "the current host"
    return "" if current in hosts else f"{own} {current} is none of {listing}, {', '.join(hosts)}"


def cluster(env: Environ, name: str, kinds: tuple[str, ...]) -> tuple[int, tuple[str, ...]] | None:
    """This task's number among those of these kinds, and the hosts of all; None for another."""
    addresses = _tasks(env, name, kinds)
    own = _own_task(env, name)
    if own not in addresses:
        return None
    hosts = (address.rpartition(":")[0] or address for address in addresses.values())
    return [*addresses].index(own), tuple(hosts)


def cluster_fault(env: Environ, name: str, kinds: tuple[str, ...]) -> str:
    """What cannot be in a variable that names a cluster and a task of it, "" for nothing.

    A cluster without tasks of these kinds is one of another program's, or nobody's. A task of
    another kind, as a parameter server is, takes no part.
    """
    if not env.get(name):
        return ""
    whole = document(env, name)
    if whole is None:
        return _not_json(env, name)
    if not isinstance(whole, dict) or not isinstance(whole.get("cluster", {}), dict):
        return f"{name} is not an object with a cluster: {env[name][:_SHOWN]}"
    listed, own = _tasks(env, name, kinds), _own_task(env, name)
    if not listed or own in listed:
        return ""
    known = ", ".join(f"{kind} {number}" for kind, number in listed)
    kind, number = own or ("", "")
    if not kind or number == "":
        several = f"{name} names the tasks {known}, but not which of them this process is"
        return several if len(listed) > 1 else ""
    if kind not in kinds:
        return ""
    return f"{name} says that this process is {kind} {number}, but its cluster has only {known}"


def _tasks(env: Environ, name: str, kinds: tuple[str, ...]) -> dict[tuple[str, str], str]:
    """The addresses of the tasks of these kinds, in their order."""
    whole = document(env, name)
    listed = whole.get("cluster") if isinstance(whole, dict) else None
    found: dict[tuple[str, str], str] = {}
    if not isinstance(listed, dict):
        return found
    for kind in kinds:
        addresses = listed.get(kind)
        for number, address in enumerate(addresses if isinstance(addresses, list) else ()):
            found[kind, str(number)] = str(address)
    return found


def _own_task(env: Environ, name: str) -> tuple[str, str] | None:
    whole = document(env, name)
    task = whole.get("task") if isinstance(whole, dict) else None
    if not isinstance(task, dict):
        return None
    return str(task.get("type", "")), str(task.get("index", ""))


def _not_json(env: Environ, name: str) -> str:
    return f"{name} is not JSON: {env[name][:_SHOWN]}"
