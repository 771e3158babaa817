from hvdtune.torch.elastic import *

from . import sampler as sampler
from . import state as state
