from hvdtune.tensorflow.keras.elastic import *
