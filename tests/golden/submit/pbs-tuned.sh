#!/bin/bash
#PBS -N train
#PBS -l select=2:ncpus=4:mpiprocs=4
#PBS -l place=scatter
#PBS -l walltime=00:01:41
#PBS -j oe
# Written by `hvdtune submit` (0.1.0) for PBS, whose `qsub` reads the lines above.

set -e -o pipefail
cd /home/ada/net

# The nodes of this job with their ranks, as in a:4,b:4
hosts="$(awk '!seen[$1]++ { printf "%s%s:4", (n++ ? "," : ""), $1 }' "$PBS_NODEFILE")"

# `hvdtune run` on the first node starts the 8 ranks, 4 on each node, by ssh on the others
exec '/opt/my tools/bin/hvdtune' run -H "$hosts" --trials 40 --fix cache_capacity=0 -- python -m train
