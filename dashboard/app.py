"""The dashboard: navigation only. Run by ``moescope dashboard``, or ``streamlit run dashboard/app.py``."""

from __future__ import annotations

from moescope.dashboard.navigation import run_chosen_page

run_chosen_page()
