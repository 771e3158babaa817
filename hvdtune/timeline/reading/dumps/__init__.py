"""What PyTorch and NCCL say of a job's collectives when they are asked, or when they stand."""
