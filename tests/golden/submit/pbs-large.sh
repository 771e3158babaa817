#!/bin/bash
#PBS -N resnet
#PBS -l select=4:ncpus=48:mpiprocs=8:ngpus=8
#PBS -l place=scatter
#PBS -l walltime=36:30:00
#PBS -q gpu
#PBS -A physics
#PBS -j oe
#PBS -o logs/resnet.out
# Written by `hvdtune submit` (0.1.0) for PBS, whose `qsub` reads the lines above.

set -e -o pipefail
cd '/home/ada/my net'

# Lines of --setup and --venv
module purge
module load cuda/12.4
source '/home/ada/my envs/train/bin/activate'

# The nodes of this job with their ranks, as in a:8,b:8
hosts="$(awk '!seen[$1]++ { printf "%s%s:8", (n++ ? "," : ""), $1 }' "$PBS_NODEFILE")"

# `hvdtune run` on the first node starts the 32 ranks, 8 on each node, by ssh on the others
exec hvdtune run -H "$hosts" -- train.py --lr 0.1 --note 'it'"'"'s a $HOME'
