from ._absent import refuse

refuse("horovod.data")
