"""What is measured and how it is stored: the ground floor that every other room stands on.

In:   nothing; this room imports only the standard library and numpy.
Does: declares metrics, attributes, records, topology, settings, errors and numbered SQL migrations, once.
Out:  names and shapes that every other room derives its own from.
"""
