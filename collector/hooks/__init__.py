"""The only modules that know an engine: one file per engine, imported lazily, failing harmlessly."""
