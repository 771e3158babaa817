#!/bin/bash
#PBS -N train
#PBS -l select=1:ncpus=1:mpiprocs=1
#PBS -l place=scatter
#PBS -j oe
# Written by `hvdtune submit` (0.1.0) for PBS, whose `qsub` reads the lines above.

set -e -o pipefail
cd /home/ada/net

# The nodes of this job with their ranks, as in a:1,b:1
hosts="$(awk '!seen[$1]++ { printf "%s%s:1", (n++ ? "," : ""), $1 }' "$PBS_NODEFILE")"

# `hvdtune run` starts the one rank
exec hvdtune run -H "$hosts" -- train.py
