from hvdtune.tensorflow.elastic import *
