"""Fixtures that several rooms share. Each stands for something real: a socket, an engine, a process."""

from hypothesis import settings

# A busy machine must not fail what is not about speed, nor chance what is right in one run and wrong in the
# next: whoever hunts for new counterexamples says --hypothesis-profile=hunt.
settings.register_profile("moescope", deadline=None, derandomize=True)
settings.register_profile("hunt", deadline=None, max_examples=2_000)
settings.load_profile("moescope")

pytest_plugins = ["tests.otlp_endpoint", "tests.server_process"]
