from hvdtune.torch.compression import BF16Compressor, Compression, Compressor, FP16Compressor

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor"]
