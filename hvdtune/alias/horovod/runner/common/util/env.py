from hvdtune.core.config.environment import environ_rank_and_size
from hvdtune.errors import UsageError


def get_env_rank_and_size() -> tuple[int, int]:
    """Rank and size that a launcher has told this process; 0 and 1 where there was none.

    Raises RuntimeError when it has told only one of them.
    """
    try:
        return environ_rank_and_size()
    except UsageError as error:
        raise RuntimeError(str(error)) from None
