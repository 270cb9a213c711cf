"""Engines that cannot be touched: what their ``/metrics`` pages say, in the registry's rows.

In:   the text of a page, again and again; fetching it is the front door's work.
Does: reads it, maps the engine's names by a declared table, and turns totals into what came since.
Out:  calls of a :class:`~moescope.collector.recorder.Meter`, as any hook makes them.
"""
