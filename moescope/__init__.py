"""moescope."""
