"""Which tokens of a prompt are computed again, and why."""

from kvweave.explain.fates import ExplainedSegment, Explanation, Fate, explain

__all__ = ["ExplainedSegment", "Explanation", "Fate", "explain"]
