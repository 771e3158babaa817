from hvdtune.keras.callbacks import *
