#!/bin/bash
#SBATCH --job-name=train
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --output=train-%j.out
# Written by `hvdtune submit` (0.1.0) for Slurm, whose `sbatch` reads the lines above.

set -e -o pipefail
cd /home/ada/net

# The ranks authenticate each other with this key. It stays in the environment, which only your own
# processes and root can read. Never write it on a command line or into a file that others can read.
HVDTUNE_KEY="$(od -An -v -N32 -tx1 /dev/urandom | tr -d ' \n')"
export HVDTUNE_KEY

# One task for the one rank
exec srun --ntasks=1 --ntasks-per-node=1 python train.py
