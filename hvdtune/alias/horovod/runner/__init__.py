from hvdtune.launcher.function import run

from .._absent import LAUNCHER, stand_in

__all__ = ["_HorovodArgs", "run"]

_HorovodArgs = stand_in("horovod.runner._HorovodArgs", LAUNCHER)
