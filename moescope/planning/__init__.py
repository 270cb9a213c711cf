"""``moescope plan``: from counts or a store to a placement, its report and an engine's file.

In:   counts in a file or a store, the current placement, what a person asked for.
Does: forecasts, plans, back-tests and advises, with the functions of the analysis.
Out:  a :class:`~moescope.analysis.plan_report.PlanReport`, and the text of a placement file.
"""
