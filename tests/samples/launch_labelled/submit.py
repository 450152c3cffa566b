import submitit
ex = submitit.AutoExecutor(folder="logs")
ex.update_parameters(
    slurm_setup=["module load cuda", "export NCCL_DEBGU=INFO"],
    slurm_additional_parameters={"export": "ALL"},
)
