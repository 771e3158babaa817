#!/bin/bash
#BSUB -J resnet
#BSUB -n 32
#BSUB -R "span[ptile=8]"
#BSUB -R "affinity[core(6)]"
#BSUB -gpu "num=8"
#BSUB -W 36:30
#BSUB -q gpu
#BSUB -P physics
#BSUB -o logs/resnet.out
# Written by `hvdtune submit` (0.1.0) for LSF, whose `bsub` reads the lines above.

set -e -o pipefail
cd '/home/ada/my net'

# Lines of --setup and --venv
module purge
module load cuda/12.4
source '/home/ada/my envs/train/bin/activate'

# The nodes of this job with their ranks, as in a:8,b:8
hosts="$(awk '!seen[$1]++ { printf "%s%s:8", (n++ ? "," : ""), $1 }' "$LSB_DJOB_HOSTFILE")"

# `hvdtune run` on the first node starts the 32 ranks, 8 on each node, by ssh on the others
exec hvdtune run -H "$hosts" -- train.py --lr 0.1 --note 'it'"'"'s a $HOME'
