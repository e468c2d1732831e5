"""Recording what happens in a run: wrappers around every interface between a client and the rest of its world.

The wrappers turn calls into events of one history; nothing in the code under test knows of them.
"""
