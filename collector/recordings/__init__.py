"""Recordings of experts that somebody else made, as counts.

In:   files: SGLang's recorder dumps, and counts in JSON.
Does: reads them without executing anything in them, drops what is private, and adds ranks up.
Out:  a :class:`~moescope.collector.recordings.recording.Recording`.
"""
