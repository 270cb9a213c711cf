"""Fixtures that several rooms share. Each stands for something real: a socket, an engine, a process."""

from hypothesis import settings

# A busy machine must not fail what is not about speed.
settings.register_profile("moescope", deadline=None)
settings.load_profile("moescope")

pytest_plugins = ["tests.otlp_endpoint", "tests.server_process"]
