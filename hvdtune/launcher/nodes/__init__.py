"""One `hvdtune run` on each node, started by a scheduler: the first launches, the others serve it.

A serving node listens like sshd. It serves one launcher, which proves that it has the key. Each
further connection belongs to one `hvdtune.launcher.agent`, except the control connection, which
reports the end of the job.
"""
