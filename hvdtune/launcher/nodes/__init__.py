"""One `hvdtune run` on each node, as a scheduler starts it: the first launches, others serve it.

A node that serves listens like an sshd that admits one launcher only: whoever connects proves that
it has the key, and is then one end of `hvdtune.launcher.agent`, or of the control connection that
tells the node when the job is over.
"""
