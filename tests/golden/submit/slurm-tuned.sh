#!/bin/bash
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --time=00:01:41
#SBATCH --output=train-%j.out
# Written by `hvdtune submit` (0.1.0) for Slurm, whose `sbatch` reads the lines above.

set -e -o pipefail
cd /home/ada/net

# The nodes of this job with their ranks, as in a:4,b:4
hosts="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | awk '!seen[$1]++ { printf "%s%s:4", (n++ ? "," : ""), $1 }')"

# `hvdtune run` on the first node starts the 8 ranks, 4 on each node, by ssh on the others
exec '/opt/my tools/bin/hvdtune' run -H "$hosts" --trials 40 --fix cache_capacity=0 -- python -m train
