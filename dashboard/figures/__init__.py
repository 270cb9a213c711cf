"""Pure functions from results of analysis to figures."""
