"""The pure core: plans are generators that yield steps (send, sleep, read, emit); a driver carries them out.

Nothing in this package opens a connection, reads a clock for waiting or starts a thread.
"""
