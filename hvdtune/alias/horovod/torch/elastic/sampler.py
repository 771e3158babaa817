from hvdtune.torch.elastic import ElasticSampler

__all__ = ["ElasticSampler"]
