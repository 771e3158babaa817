from hvdtune.launcher.function import run

__all__ = ["run"]
