"""Several runs side by side: groups.py says which are seeds of one setting, curves.py what was measured over what cost,
lines.py draws that, rows.py makes a row per setting, tables.py prints rows as text, CSV, Markdown, LaTeX or JSON.
"""
