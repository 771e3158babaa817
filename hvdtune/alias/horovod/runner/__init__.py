from hvdtune.launch.function import run

__all__ = ["run"]
