#!/bin/bash
#BSUB -J train
#BSUB -n 8
#BSUB -R "span[ptile=4]"
#BSUB -W 0:02
#BSUB -o train-%J.out
# Written by `hvdtune submit` (0.1.0) for LSF, whose `bsub` reads the lines above.

set -e -o pipefail
cd /home/ada/net

# The nodes of this job with their ranks, as in a:4,b:4
hosts="$(awk '!seen[$1]++ { printf "%s%s:4", (n++ ? "," : ""), $1 }' "$LSB_DJOB_HOSTFILE")"

# `hvdtune run` on the first node starts the 8 ranks, 4 on each node, by ssh on the others
exec '/opt/my tools/bin/hvdtune' run -H "$hosts" --trials 40 --fix cache_capacity=0 -- python -m train
