/*
 * foreign_options.c - a table of options of other launchers that ddprun spells differently or does
 * not have. No row may be a prefix of one of ddprun's own options, as it would be taken for that.
 */
#include "foreign_options.h"

#define WORKERS                                                                               \
    "use --nproc-per-node=N, the workers of each node, and run the command once on a single " \
    "machine, or once on each of several (--nnodes=K --rdzv-endpoint=HOST)"
#define HOSTS "use --hosts=a,b,c (-H) or --hostfile=FILE, which start ddprun on each by ssh"
#define NODES                                                                                     \
    "use --nnodes=N with --rdzv-endpoint=HOST, where HOST is one of the nodes, and run the same " \
    "command on each of them"
#define ENVIRONMENT \
    "workers inherit the whole environment; NAME=VALUE in front of ddprun sets another variable"
#define BINDING \
    "use --numa-binding=exclusive for cores of their own, or =node for those near the GPU"
#define PREFIX "lines already have a prefix, see --log-line-prefix-template and --no-prefix"
#define FILES  "use --log-dir=DIR with --redirects=3, or with --tee=3 to see the output as well"
#define FOLDER "workers start in the current directory: use 'cd' before"
#define GPUS \
    "use --nproc-per-node=gpu, with CUDA_VISIBLE_DEVICES=0,2 in front of ddprun to select GPUs"
#define MASTER  "use --rdzv-endpoint=HOST:PORT, the same on all nodes"
#define ELASTIC "use --nnodes=MIN:MAX, which counts nodes; a node joins when the command runs there"
#define NOTHING "leave it out"
#define TIME    "use 'timeout 10m ddprun ...' for a job, and --join-timeout for the wait for nodes"

const struct option_foreign ddprun_foreign_options[] = {
    /* mpirun, mpiexec */
    {"-n", "mpirun and srun", WORKERS},
    {"-c", "mpirun and srun", WORKERS},
    {"-N", "mpirun and srun", "use --nproc-per-node=N for mpirun's, --nnodes=N for srun's"},
    {"-npernode", "mpirun", WORKERS},
    {"--npernode", "mpirun", WORKERS},
    {"-ppn", "mpiexec", WORKERS},
    {"--ppn", "mpiexec", WORKERS},
    {"-perhost", "mpiexec", WORKERS},
    {"-host", "mpirun", HOSTS},
    {"-f", "mpiexec", HOSTS},
    {"-machinefile", "mpirun", HOSTS},
    {"--machinefile", "mpirun", HOSTS},
    {"-env", "mpiexec", ENVIRONMENT},
    {"-genv", "mpiexec", ENVIRONMENT},
    {"-genvall", "mpiexec", ENVIRONMENT},
    {"-bind-to", "mpirun", BINDING},
    {"--bind-to", "mpirun", BINDING},
    {"-map-by", "mpirun", BINDING},
    {"--map-by", "mpirun", BINDING},
    {"--rank-by", "mpirun", BINDING},
    {"--report-bindings", "mpirun", BINDING},
    {"-mca", "mpirun", NOTHING},
    {"--mca", "mpirun", NOTHING},
    {"--prtemca", "mpirun", NOTHING},
    {"--oversubscribe", "mpirun", NOTHING},
    {"--allow-run-as-root", "mpirun", NOTHING},
    {"--display-map", "mpirun", NOTHING},
    {"-iface", "mpiexec", "use --local-addr=ADDRESS"},
    {"--tag-output", "mpirun", PREFIX},
    {"-prepend-rank", "mpiexec", PREFIX},
    {"--output-filename", "mpirun and horovodrun", FILES},
    {"-wdir", "mpirun", FOLDER},
    {"--wdir", "mpirun", FOLDER},
    {"-wd", "mpirun", FOLDER},
    {"--timeout", "mpirun", TIME},
    /* horovodrun */
    {"--num-proc", "horovodrun", WORKERS},
    {"--min-np", "horovodrun", ELASTIC},
    {"--max-np", "horovodrun", ELASTIC},
    {"--slots-per-host", "horovodrun", WORKERS},
    {"--reset-limit", "horovodrun", "use --max-restarts=N"},
    {"--network-interface", "horovodrun", "use --local-addr=ADDRESS"},
    {"--gloo", "horovodrun", NOTHING},
    {"--ssh-port", "horovodrun", "use --launcher='ssh -p PORT'"},
    {"--ssh-identity-file", "horovodrun", "use --launcher='ssh -i FILE'"},
    {"-p", "horovodrun and srun",
     "for the port of ssh use --launcher='ssh -p PORT'; give a partition to sbatch or srun"},
    /* srun */
    {"--ntasks", "srun", WORKERS},
    {"--ntasks-per-node", "srun", WORKERS},
    {"--nodes", "srun", NODES},
    {"-w", "srun", HOSTS},
    {"--nodelist", "srun", HOSTS},
    {"--cpus-per-task", "srun", BINDING},
    {"--cpu-bind", "srun", BINDING},
    {"--gpus", "srun", GPUS},
    {"--gpus-per-node", "srun", GPUS},
    {"--gpus-per-task", "srun", GPUS},
    {"-G", "srun", GPUS},
    {"--gres", "srun", GPUS},
    {"-l", "srun", PREFIX},
    {"--label", "srun", PREFIX},
    {"-o", "srun", FILES},
    {"-e", "srun", FILES},
    {"--output", "srun", FILES},
    {"--error", "srun", FILES},
    {"-D", "srun", FOLDER},
    {"--chdir", "srun", FOLDER},
    {"--time", "srun", TIME},
    {"-K", "srun", "leave it out: a worker that fails always ends the others"},
    {"--kill-on-bad-exit", "srun", "leave it out: a worker that fails always ends the others"},
    /* deepspeed, accelerate launch */
    {"--num-gpus", "deepspeed", WORKERS},
    {"--num-nodes", "deepspeed", NODES},
    {"--num-accelerators", "deepspeed", WORKERS},
    {"--no-ssh", "deepspeed", NOTHING},
    {"--no-ssh-check", "deepspeed", NOTHING},
    {"--elastic-training", "deepspeed", ELASTIC},
    {"--enable-each-rank-log", "deepspeed", FILES},
    {"--num-processes", "accelerate", WORKERS},
    {"--num-machines", "accelerate", NODES},
    {"--machine-rank", "accelerate", "use --node-rank=N"},
    {"--main-process-ip", "accelerate", MASTER},
    {"--main-process-port", "accelerate", MASTER},
    {"--multi-gpu", "accelerate", NOTHING},
    {"--config-file", "accelerate", "ddprun reads no file of options: leave it out"},
    {NULL, NULL, NULL},
};
