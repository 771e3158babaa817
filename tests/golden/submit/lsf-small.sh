#!/bin/bash
#BSUB -J train
#BSUB -n 1
#BSUB -R "span[ptile=1]"
#BSUB -o train-%J.out
# Written by `hvdtune submit` (0.1.0) for LSF, whose `bsub` reads the lines above.

set -e -o pipefail
cd /home/ada/net

# The nodes of this job with their ranks, as in a:1,b:1
hosts="$(awk '!seen[$1]++ { printf "%s%s:1", (n++ ? "," : ""), $1 }' "$LSB_DJOB_HOSTFILE")"

# `hvdtune run` starts the one rank
exec hvdtune run -H "$hosts" -- train.py
