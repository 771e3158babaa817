from hvdtune.keras.elastic import *
