"""Parts of pages: each draws one result of analysis."""
