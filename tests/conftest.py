"""Fixtures that several rooms share. Each stands for something real: a socket, an engine, a process."""

pytest_plugins = ["tests.otlp_endpoint", "tests.server_process"]
