"""Whether a setting of a script reaches the training, and what of a script is executed at all."""

import pytest

from whichrank.source import launch, shell

EXPORT = "export NCCL_DEBUG=WARN\n"


def lost(text):
    return {found.name: found.why for found in shell.read(text, "a.sh").lost}


def names(text):
    return {a.name for a in shell.read(text, "a.sh").assignments}


@pytest.mark.parametrize(
    ("launch", "word"),
    [
        ("sudo python train.py", "sudo"),
        ("sudo -u x --preserve-env=PATH python train.py", "sudo"),
        ("su - x -c 'python train.py'", "login shell"),
        ("env -i PATH=$PATH python train.py", "env -i"),
        ("ssh n1 'cd x && torchrun train.py'", "ssh"),
        ("pdsh -w n[1-4] torchrun train.py", "pdsh"),
        ("srun --export=PATH,HOME python train.py", "--export"),
        ("srun --export=NONE python train.py", "--export"),
        ("mpirun -np 16 --hostfile h python train.py", "-x"),
        ("mpirun -np 16 -H a:8,b:8 -x PATH python train.py", "-x"),
        ("docker run --gpus all img torchrun train.py", "-e"),
        ("singularity exec --cleanenv img.sif python train.py", "--cleanenv"),
        ("systemd-run --unit=t torchrun train.py", "systemd-run"),
        ("ray job submit -- python train.py", "cluster"),
        ("kubectl exec pod -- torchrun train.py", "kubectl"),
        ("qsub train.sh", "qsub"),
    ],
)
def test_it_does_not_arrive(launch, word):
    assert word in lost(EXPORT + launch)["NCCL_DEBUG"]


@pytest.mark.parametrize(
    "launch",
    [
        "sudo -E python train.py",
        "sudo --preserve-env=NCCL_DEBUG python train.py",
        "sudo NCCL_DEBUG=$NCCL_DEBUG python train.py",
        "sudo nvidia-smi",
        "su x -c 'python train.py'",
        'ssh n1 "NCCL_DEBUG=$NCCL_DEBUG torchrun train.py"',
        "ssh -o SendEnv=NCCL_* n1 torchrun train.py",
        "ssh n1 nvidia-smi",
        "srun --export=ALL,A=1 python train.py",
        "srun python train.py",
        "mpirun -np 8 python train.py",
        "mpirun -np 16 --hostfile h -x NCCL_DEBUG python train.py",
        "mpiexec -f hosts -ppn 8 python train.py",
        'X=(); for v in $(compgen -e); do X+=(-x "$v"); done; mpirun --hostfile h "${X[@]}" python train.py',
        "docker run -e NCCL_DEBUG img torchrun train.py",
        "docker ps",
        "singularity exec img.sif python train.py",
        "nohup nice -n 5 torchrun train.py &",
        "bash -c 'torchrun train.py'",
        "ray job submit --runtime-env env.yaml -- python train.py",
        "qsub -V train.sh",
    ],
)
def test_it_arrives(launch):
    assert lost(EXPORT + launch) == {}


@pytest.mark.parametrize(
    "text",
    [
        "if false; then export NCCL_TIMEOUT=1; fi",
        "DEBUG=0\nif [ $DEBUG = 1 ]; then export NCCL_TIMEOUT=1; fi",
        "f() { export NCCL_TIMEOUT=1; }\ntorchrun t.py",
        "exec torchrun t.py\nexport NCCL_TIMEOUT=1",
        "exit 0\nexport NCCL_TIMEOUT=1",
        "cat <<EOF\nexport NCCL_TIMEOUT=1\nEOF",
        "echo 'export NCCL_TIMEOUT=1'",
        "export NCCL_TIMEOUT=1\nunset NCCL_TIMEOUT\ntorchrun t.py",
        "case prod in debug) export NCCL_TIMEOUT=1 ;; esac",
    ],
)
def test_it_is_not_executed(text):
    assert "NCCL_TIMEOUT" not in names(text)


@pytest.mark.parametrize(
    "text",
    [
        "cd x || exit 1\nexport NCCL_TIMEOUT=1",
        "f() { export NCCL_TIMEOUT=1; }\nf\ntorchrun t.py",
        "f() { export NCCL_TIMEOUT=1; }",
        'f() { export "$1=$2"; }\nf NCCL_TIMEOUT 1',
        'E=(NCCL_TIMEOUT=1)\nenv "${E[@]}" torchrun t.py',
        'declare -A E=([NCCL_TIMEOUT]=1)\nfor k in "${!E[@]}"; do export "$k=${E[$k]}"; done',
        "while IFS='=' read -r k v; do export \"$k=$v\"; done <<EOF\nNCCL_TIMEOUT=1\nEOF",
        "eval 'export NCCL_TIMEOUT=1'",
        "${DEBUG:-false} && export NCCL_TIMEOUT=1",
        "case $1 in a) export NCCL_TIMEOUT=1 ;; esac",
        'if [ -n "$A" ]; then export NCCL_TIMEOUT=1; fi',
    ],
)
def test_it_is_executed(text):
    assert "NCCL_TIMEOUT" in names(text)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("(export NCCL_DEBUG=WARN)\ntorchrun t.py", "subshell"),
        ("torchrun t.py\nexport NCCL_DEBUG=WARN", "after"),
        ("#SBATCH --export=NONE\nexport NCCL_DEBUG=WARN\nsrun python t.py", "sbatch"),
        ("export TORCH_NCCL_DUMP_ON_TIMEOUT=1\ndeepspeed --hostfile h t.py", "deepspeed"),
    ],
)
def test_other_ways_to_lose_it(text, word):
    (why,) = lost(text).values()
    assert word in why


def test_slurm_passes_all_again_once_told():
    text = "#SBATCH --export=NONE\nunset SLURM_EXPORT_ENV\nexport NCCL_DEBUG=WARN\nsrun python t.py"
    assert lost(text) == {}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc-per-node=4 t.py", "CUDA_VISIBLE_DEVICES and --nproc-per-node"),
        ("export MASTER_ADDR=localhost\ntorchrun --nnodes=2 t.py", "MASTER_ADDR"),
        ("export NCCL_SOCKET_IFNAME=lo\ntorchrun --nnodes 2 t.py", "NCCL_SOCKET_IFNAME"),
        ("#SBATCH --ntasks-per-node=8\nsrun torchrun --nproc_per_node 8 t.py", "ntasks-per-node"),
    ],
)
def test_a_launch_that_does_not_fit(text, name):
    found = [clash.name for clash in launch.read(text.encode(), "a.sh").clashes if clash.severity != "info"]
    assert found == [name]


@pytest.mark.parametrize(
    "text",
    [
        "CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc-per-node=2 t.py",
        "export MASTER_ADDR=localhost\ntorchrun --nnodes=1 t.py",
        "#SBATCH --ntasks-per-node=8\ntorchrun --nproc_per_node 8 t.py",
        "#SBATCH --ntasks-per-node=1\nsrun torchrun --nproc_per_node 8 t.py",
    ],
)
def test_a_launch_that_fits(text):
    assert shell.read(text, "a.sh").clashes == []
