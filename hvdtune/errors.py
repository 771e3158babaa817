"""Every error hvdtune raises.

    HvdtuneError
    |-- UsageError            the caller asked for something that cannot be (exit code 2)
    |   |-- ArgumentError     the value of one parameter of the Python API, or of its option
    |   |-- StepOrderError    backward, zero_grad and step in an order that loses gradients
    |   `-- UnsupportedError  an operation that has no meaning for such a tensor or object
    |-- RendezvousError       the ranks of a job did not find each other
    |-- CollectiveError       a collective did not complete (Horovod's HorovodInternalError)
    |   |-- RankLostError     a rank exited, was killed or stopped answering
    |   |-- MismatchError     ranks disagree about a tensor's shape, dtype or operation
    |   |-- HangError         nothing moved for the abort time; `rank` is why
    |   |-- ShutdownError     the runtime was shut down while the operation was pending
    |   `-- DuplicateNameError  a tensor of this name is already in flight on this rank
    |-- TraceFormatError      a trace file could not be read
    |-- StudyError            a tuning study could not be stored, read or resumed
    |-- LaunchError           the processes of a job could not be started
    |-- FunctionError         a function did not return on a rank of `hvdtune.run`
    |-- StateLostError        an elastic training's state is not held by any rank any more
    |-- RankRemovedError      the host of this rank has left an elastic job; no failure
    |-- HostsUpdatedInterrupt  the hosts of an elastic job changed; no failure
    `-- HorovodVersionMismatchError  a framework is not the one an extension was built for

Errors raised in the C++ core arrive as these types.
"""

from collections.abc import Mapping


class HvdtuneError(Exception):
    """Base of all errors; `exit_code` is what the command line returns for it."""

    exit_code = 1


class UsageError(HvdtuneError, ValueError, RuntimeError):
    """A bad argument, option or environment variable.

    A ValueError and a RuntimeError: scripts catch the one for what Horovod refuses in Python and
    the other for what its core refuses.
    """

    exit_code = 2


class ArgumentError(UsageError):
    """The value of a parameter cannot be.

    The message calls the parameter by its name in the Python API. What else has it under another
    name, as the command line has options, asks for the message in its own `words`.
    """

    def __init__(self, name: str, problem: str, value: object = "") -> None:
        """`value` is "" where `problem` says it."""
        self.name, self.problem, self.value = name, problem, value
        super().__init__(self.words({}))

    def __reduce__(self) -> tuple[type, tuple[str, str, object]]:
        return type(self), (self.name, self.problem, self.value)

    def words(self, names: Mapping[str, str]) -> str:
        """The message with the parameter's name in `names`, or its own where it has none there."""
        name = names.get(self.name, self.name)
        return (
            f"{name} {self.value}: {self.problem}"
            if self.value != ""
            else f"{name}: {self.problem}"
        )


class StepOrderError(UsageError, AssertionError):
    """backward, synchronize, zero_grad and step came in an order that loses or spoils gradients."""


class UnsupportedError(UsageError, NotImplementedError):
    """An operation that does not support such a tensor or object.

    A NotImplementedError: scripts catch what Horovod raises.
    """


class RendezvousError(HvdtuneError, RuntimeError):
    """The job could not be formed within its start timeout."""


class CollectiveError(HvdtuneError, RuntimeError):
    """A collective failed. `rank` is the rank at fault (-1: none), `tensor` its name ("": none)."""

    def __init__(self, message: str, rank: int = -1, tensor: str = "") -> None:
        super().__init__(message)
        self.rank = rank
        self.tensor = tensor


class RankLostError(CollectiveError):
    """A rank exited, was killed, or has not answered for the heartbeat timeout."""


class MismatchError(CollectiveError):
    """Ranks announced one tensor with different shapes, dtypes, operations or roots."""


class HangError(CollectiveError):
    """Operations waited for HVDTUNE_HANG_ABORT_S and nobody who computes could have ended that."""


class ShutdownError(CollectiveError):
    """The runtime was shut down before the operation completed."""


class DuplicateNameError(CollectiveError, ValueError):
    """Two operations of one name were in flight on one rank."""


class TraceFormatError(HvdtuneError, ValueError):
    """A trace cannot be read. `path` names the file, `offset` the byte, -1 where none applies."""

    def __init__(self, message: str, path: str = "", offset: int = -1) -> None:
        super().__init__(message)
        self.path = path
        self.offset = offset


class StudyError(HvdtuneError, RuntimeError):
    """A tuning study could not be stored, read or resumed."""


class LaunchError(HvdtuneError, RuntimeError):
    """The processes of a job could not be started."""


class FunctionError(HvdtuneError, RuntimeError):
    """A function that `hvdtune.run` called on ranks did not return on `rank`."""

    def __init__(self, message: str, rank: int = -1) -> None:
        super().__init__(message)
        self.rank = rank


class StateLostError(HvdtuneError, RuntimeError):
    """What lost ranks of an elastic training had for themselves is held by no other."""


class RankRemovedError(HvdtuneError, RuntimeError):
    """The host of this rank is no longer a part of the elastic job, which goes on without it."""


class HostsUpdatedInterrupt(HvdtuneError, RuntimeError):
    """The hosts of an elastic job changed. `skip_sync`: no state needs to be sent to new ranks."""

    def __init__(self, skip_sync: bool) -> None:
        super().__init__("the hosts of the job have changed")
        self.skip_sync = skip_sync


class HorovodVersionMismatchError(HvdtuneError, ImportError):
    """A framework's version is not the one that its extension was built for.

    hvdtune has no extension per framework and never raises it; scripts that catch it go on to.
    """

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(
            f"the extension for {name} was built for version {version}; {installed_version} is "
            "installed"
        )
        self.name = name
        self.version = version
        self.installed_version = installed_version


HorovodInternalError = CollectiveError
