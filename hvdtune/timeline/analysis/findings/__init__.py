"""Findings: what costs time, who causes it, what to do. `why` finds them."""

from hvdtune.timeline.analysis.findings.finding import Cost, Evidence, Finding
from hvdtune.timeline.analysis.findings.why import Answer, why

__all__ = ["Answer", "Cost", "Evidence", "Finding", "why"]
