"""Findings: what costs time, who causes it, what to do. `why` finds them."""

from hvdtune.timeline.analysis.findings.finding import StepCost, TraceEvidence, TraceFinding
from hvdtune.timeline.analysis.findings.why import Answer, why

__all__ = ["Answer", "StepCost", "TraceEvidence", "TraceFinding", "why"]
