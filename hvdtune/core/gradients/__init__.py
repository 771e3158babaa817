"""How the gradients of a step travel, without a framework: which alone, which together, and when.

Starting an operation costs microseconds, which is nothing for a gradient of a megabyte and the
whole cost of one of a kilobyte. So a large gradient is an operation of its own that starts while
the backward pass still runs, in one call with those that became ready shortly before, and the small
ones of one dtype are packed into one tensor, a `FlatBuffer`, that travels when the pass is over.
Gradients that the user has grouped are one operation on where they are, started when the last of
them is ready. Every rank must arrange the same gradients in the same order.
"""
