#!/bin/bash
#SBATCH --job-name=resnet
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=48
#SBATCH --gpus-per-node=8
#SBATCH --time=36:30:00
#SBATCH --partition=gpu
#SBATCH --account=physics
#SBATCH --output=logs/resnet.out
# Written by `hvdtune submit` (0.1.0) for Slurm, whose `sbatch` reads the lines above.

set -e -o pipefail
cd '/home/ada/my net'

# Lines of --setup and --venv
module purge
module load cuda/12.4
source '/home/ada/my envs/train/bin/activate'

# The ranks authenticate each other with this key. It stays in the environment, which only your own
# processes and root can read. Never write it on a command line or into a file that others can read.
HVDTUNE_KEY="$(od -An -v -N32 -tx1 /dev/urandom | tr -d ' \n')"
export HVDTUNE_KEY

# One `hvdtune run` on each node, together the 32 ranks, 8 on each node
exec srun --ntasks=4 --ntasks-per-node=1 --cpus-per-task=48 hvdtune run -np 32 --trials 40 -- train.py --lr 0.1 --note 'it'"'"'s a $HOME'
