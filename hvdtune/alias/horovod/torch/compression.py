from hvdtune.torch.compression import *
