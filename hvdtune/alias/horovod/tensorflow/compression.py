from hvdtune.tensorflow.compression import *
