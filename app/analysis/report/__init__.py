"""The report: one HTML file without scripts and without network, made of what `homing analyze` wrote."""

from app.analysis.report.page import REPORT_NAME, write_report

__all__ = ["REPORT_NAME", "write_report"]
