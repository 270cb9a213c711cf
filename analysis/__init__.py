"""Decisions as pure functions: arrays in, frozen result out, formulas with their source.

In:   arrays read by named queries from any store that the migrations were applied to.
Does: imbalance, hot experts and data quality, each guarded against crying wolf.
Out:  frozen results that a page, a report or a rule only has to print.
"""
