from hvdtune.tensorflow.keras.callbacks import *
