"""The page that people keep open.

In:   frozen results from analysis.
Does: draws them. No SQL text and no arithmetic live here.
Out:  Streamlit pages and Plotly figures.
"""
