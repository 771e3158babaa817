"""Training that goes on when ranks come and go.

A rank that is lost makes the others raise HorovodInternalError: they go back to the last commit,
form the next generation of the job without a new process, and go on from there. Newcomers are
taken in at a commit, where all ranks raise HostsUpdatedInterrupt.
"""
