"""The report: one HTML file without scripts and without network."""
