"""Inside the engine process: what the router chose, counted where it was chosen.

In:   the selected expert ids of each forward pass, from a hook.
Does: adds them to counters on their own device; one reporter thread closes windows and measures itself.
Out:  frozen windows of records, handed to anything with ``export(window)``. No database, no network.
"""
