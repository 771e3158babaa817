from hvdtune.tensorflow import LocalGradientAggregationHelper

__all__ = ["LocalGradientAggregationHelper"]
