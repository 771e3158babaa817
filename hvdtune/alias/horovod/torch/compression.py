from hvdtune.torch.compression import Compression, Compressor

__all__ = ["Compression", "Compressor"]
