from .._absent import refuse

refuse("horovod.tensorflow.data")
