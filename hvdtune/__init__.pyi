from hvdtune.launcher.function import run as run
from hvdtune.workflows.api import launch as launch
from hvdtune.workflows.api import load_trace as load_trace
from hvdtune.workflows.api import tune as tune
from hvdtune.workflows.api import verify as verify

__version__: str
