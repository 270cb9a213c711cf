"""``moescope check FILE``: is a deployment ready, by a protocol that somebody wrote down?

In:   a YAML file with the limits, and a store or a recording with the numbers.
Does: checks the file to the line, gathers the evidence, and has :mod:`moescope.analysis.readiness` judge it.
Out:  text for a person, JSON, JUnit XML for a CI system, and an exit code.
"""
