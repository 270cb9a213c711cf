"""``moescope scrape``: read the ``/metrics`` pages of engines that cannot be touched.

In:   URLs.
Does: fetches each page on whole multiples of the interval, and has it followed.
Out:  OTLP, as from any process; a page that does not answer falls silent in ``telemetry_health``.
"""
