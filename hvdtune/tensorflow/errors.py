"""Errors of operations on TensorFlow's tensors: each is an error of hvdtune and of TensorFlow.

A script may catch `hvd.HorovodInternalError`, or ValueError for a bad argument, or what Horovod's
operations raise, tf.errors.FailedPreconditionError for instance. TensorFlow makes the exceptions of
kernels itself; those of ours become errors of this module when they are made.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

import tensorflow as tf

from hvdtune import errors
from hvdtune.errors import HvdtuneError

Params = ParamSpec("Params")
Result = TypeVar("Result")

_PAYLOAD: Final = b"hvdtune"
_TOLD: Final = re.compile(r"(\w+)(?: by rank (\d+))?(?: at tensor (.*))?", re.DOTALL)
# What TensorFlow puts around the message of an operation that is carried out eagerly.
_AROUND: Final = re.compile(r"(?:\{\{function_node \S+\}\} )?(.*?)(?: \[Op:\w+\].*)?", re.DOTALL)

_CARRIED_OUT: Final = re.compile(
    r"\b(?:CollectiveError|RankLostError|HangError|ShutdownError): ([^\n]*)"
)


class _Told(NamedTuple):
    """A kernel's error without the message; see csrc/tensorflow/collective_kernel.h."""

    kind: str
    rank: int  # -1: of none
    tensor: str


def _told(payloads: Any) -> _Told | None:
    payload = payloads.get(_PAYLOAD) if isinstance(payloads, dict) else None
    found = None if payload is None else _TOLD.fullmatch(payload.decode())
    if found is None:
        return None
    kind, rank, tensor = found.groups()
    return _Told(kind, -1 if rank is None else int(rank), tensor or "")


class _Both(Exception):
    """Attributes that make an error of hvdtune also one of TensorFlow."""

    ag_pass_through = True  # or AutoGraph would replace it by an error of its own
    _of_tensorflow: type[Any]

    def __init__(self, node_def: Any, op: Any, message: str, *payloads: Any) -> None:
        super().__init__(message)
        vars(self).update(vars(self._of_tensorflow(node_def, op, message)))
        self._experimental_payloads = payloads[0] if payloads else {}
        told = _told(self._experimental_payloads)
        if told is not None and isinstance(self, errors.CollectiveError):
            self.rank, self.tensor = told.rank, told.tensor

    def __reduce__(self) -> Any:
        # The operation of a session's graph cannot be pickled; its text is in the message.
        left = ("_op", "_node_def", "_message")
        kept = {name: value for name, value in vars(self).items() if name not in left}
        return _made, (type(self), str(self), kept)


def _made(kind: type[Any], message: str, attributes: dict[str, Any]) -> Any:
    error = kind(None, None, message)
    vars(error).update(attributes)
    return error


def _both(kind: type[HvdtuneError], of_tensorflow: type[Any]) -> Any:
    attributes = {"__doc__": kind.__doc__, "__module__": __name__, "_of_tensorflow": of_tensorflow}
    return type(kind.__name__, (_Both, kind, of_tensorflow), attributes)


# TensorFlow's are those that Horovod's users catch; csrc/tensorflow/collective_kernel.h has the
# same for errors of graphs.
UsageError = _both(errors.UsageError, tf.errors.InvalidArgumentError)
UnsupportedError = _both(errors.UnsupportedError, tf.errors.InvalidArgumentError)
DuplicateNameError = _both(errors.DuplicateNameError, tf.errors.InvalidArgumentError)
MismatchError = _both(errors.MismatchError, tf.errors.FailedPreconditionError)
CollectiveError = _both(errors.CollectiveError, tf.errors.UnknownError)
RankLostError = _both(errors.RankLostError, tf.errors.UnknownError)
HangError = _both(errors.HangError, tf.errors.UnknownError)
ShutdownError = _both(errors.ShutdownError, tf.errors.UnknownError)
KINDS: Final[dict[type[HvdtuneError], Any]] = {
    getattr(errors, kind.__name__): kind
    for kind in (
        UsageError,
        UnsupportedError,
        DuplicateNameError,
        MismatchError,
        CollectiveError,
        RankLostError,
        HangError,
        ShutdownError,
    )
}


def typed(function: Callable[Params, Result]) -> Callable[Params, Result]:
    """The function, whose errors of hvdtune are those of this module."""

    @functools.wraps(function)
    def call(*arguments: Params.args, **options: Params.kwargs) -> Result:
        try:
            return function(*arguments, **options)
        except HvdtuneError as error:
            kind = next((KINDS[base] for base in type(error).__mro__ if base in KINDS), None)
            if kind is None or isinstance(error, _Both):
                raise
            own = _made(kind, str(error), vars(error))
            raise own.with_traceback(error.__traceback__) from error.__cause__

    return call


def plainly(function: Callable[Params, Result]) -> Callable[Params, Result]:
    """The function, which carries out one operation: its errors have the words of the core alone,
    and not where TensorFlow was."""

    @functools.wraps(function)
    def call(*arguments: Params.args, **options: Params.kwargs) -> Result:
        try:
            return function(*arguments, **options)
        except tf.errors.OpError as error:
            if _told(error.experimental_payloads) is None:
                raise
            around = _AROUND.fullmatch(error.message)
            message = around[1] if around else error.message
            raise _made(type(error), message, {**vars(error), "_message": message}) from None

    return call


def failure_of(error: BaseException) -> errors.CollectiveError | None:
    """The failure behind an error of a graph whose operations Python carries out, where TensorFlow
    keeps the words and not the error."""
    if not isinstance(error, tf.errors.OpError):
        return None
    found = _CARRIED_OUT.search(error.message)
    return None if found is None else errors.CollectiveError(found[1].strip())


def _new(cls: type[Any], *arguments: Any, **options: Any) -> Any:
    told = _told(arguments[3]) if len(arguments) > 3 else None
    kind = cls if told is None else KINDS.get(getattr(errors, told.kind), CollectiveError)
    return Exception.__new__(kind if issubclass(kind, cls) else cls, *arguments, **options)


tf.errors.OpError.__new__ = _new
