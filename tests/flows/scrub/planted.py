"""Strings that must not survive `scrub`, each in a line as it stands in real evidence. All of them are made up."""

from __future__ import annotations

# ruff: noqa: E501
import base64
import random
import string


def rnd(count, alphabet=string.ascii_letters + string.digits, seed=7):
    return "".join(random.Random(f"{seed}{count}{alphabet}").choices(alphabet, k=count))


HEX = "0123456789abcdef"
_JWT = ".".join(
    base64.urlsafe_b64encode(part).decode().rstrip("=")
    for part in (b'{"alg":"HS256"}', b'{"sub":"4711"}', b"signature-bytes-123")
)

# kind: (line, what must be gone)
SECRETS = {
    "aws id": ("AWS_ACCESS_KEY_ID=AKIA" + rnd(16, string.ascii_uppercase), "AKIA" + rnd(16, string.ascii_uppercase)),
    "aws session id": ("key ASIA" + rnd(16, string.ascii_uppercase) + ".", "ASIA" + rnd(16, string.ascii_uppercase)),
    "aws secret": (
        "export AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzzzzzzKEY",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzzzzzzKEY",
    ),
    "aws secret bare": ("using wJalrXUtnFEMI/K7MDENG/bPxRfiCYqqqqqqqKEY now", "K7MDENG/bPxRfiCYqqqqqqqKEY"),
    "github": ("remote: https://x-access-token:ghs_" + rnd(36) + "@github.com/a/b.git", "ghs_" + rnd(36)),
    "github pat": ("token github_pat_" + rnd(60), "github_pat_" + rnd(60)),
    "gitlab": ("GITLAB=glpat-" + rnd(20), "glpat-" + rnd(20)),
    "npm": ("//registry.npmjs.org/:_authToken=npm_" + rnd(36), "npm_" + rnd(36)),
    "google": ("url?key=AIza" + rnd(35), "AIza" + rnd(35)),
    "hugging face": ("HF_TOKEN=hf_" + rnd(34), "hf_" + rnd(34)),
    "openai": ("OPENAI_API_KEY: sk-proj-" + rnd(60), "sk-proj-" + rnd(60)),
    "slack": ("xoxb-123456789012-123456789012-" + rnd(24), rnd(24)),
    "slack hook": ("post to https://hooks.slack.com/services/T01ABCDEF/B01ABCDEF/" + rnd(22), rnd(22)),
    "discord hook": ("https://discord.com/api/webhooks/123456789/" + rnd(30), rnd(30)),
    "jwt": ("got " + _JWT + " from the server", _JWT),
    "bearer": ("> Authorization: Bearer " + rnd(18), rnd(18)),
    "basic": (
        "-H 'Authorization: Basic " + base64.b64encode(b"anna:geheim99").decode() + "'",
        base64.b64encode(b"anna:geheim99").decode(),
    ),
    "flag": ("python train.py --password Tr0ub4dor --lr 1e-4", "Tr0ub4dor"),
    "flag list": ("['train.py', '--db-password', 'Tr1ub4dor', '--lr']", "Tr1ub4dor"),
    "env quoted": ('export DB_PASSWORD="zwei Worte!7"', "zwei Worte!7"),
    "yaml": ("  api_key: k-91-zuckerbrot", "k-91-zuckerbrot"),
    "json": ('{"client_secret": "s3cr3t-zucker", "x": 1}', "s3cr3t-zucker"),
    "json escaped": ('{"cmd": "{\\"password\\": \\"Tr2ub4dor\\"}"}', "Tr2ub4dor"),
    "url password": ("postgres://svc:Pa55-w0rd!@db:5432/x", "Pa55-w0rd!"),
    "odbc": ("Server=db;Uid=svc;Password=Pa66-w0rd;Timeout=3", "Pa66-w0rd"),
    "azure key": ("AccountName=x;AccountKey=" + rnd(86) + "==;EndpointSuffix=core", rnd(86)),
    "signed url": (
        "GET https://b.s3.amazonaws.com/k?X-Amz-Signature=" + rnd(64, HEX) + "&X-Amz-Expires=60",
        rnd(64, HEX),
    ),
    "sas": ("https://a.blob.core.windows.net/c?sv=2022&sig=abc%2Fdef%2Fghi%3D", "abc%2Fdef%2Fghi"),
    "cookie": ("Set-Cookie: session=" + rnd(26) + "; Path=/", rnd(26)),
    "netrc": ("machine api.wandb.ai login user password " + rnd(40, HEX), rnd(40, HEX)),
    "curl": ("curl -u bot:Pa77-w0rd http://x/y", "Pa77-w0rd"),
    "hash": ("root:$6$salt$" + rnd(60) + ":19000:", rnd(60)),
    "bare hex": ("found " + rnd(48, HEX), rnd(48, HEX)),
    "bare base64": ("found " + rnd(44) + "=", rnd(44)),
    "wandb": ("WANDB_API_KEY=" + rnd(40, HEX, 9), rnd(40, HEX, 9)),
}
IDENTITIES = {
    "nccl host": ("quasar:812:900 [3] NCCL INFO Bootstrap : Using eth0:10.20.30.41<0>", "quasar"),
    "nccl address": ("x:1:1 [0] NCCL INFO NET/Socket : Using [0]eth0:10.20.30.42<0>", "10.20.30.42"),
    "upper case": ("lost QUASAR again", "QUASAR"),
    "fqdn": ("ssh: connect to host quasar.hpc.zeta-corp.com port 22: refused", "zeta-corp"),
    "address at the end": ("can't reach 10.20.30.43.", "10.20.30.43"),
    "ec2": ("on ip-10-20-30-44.ec2.internal", "10-20-30-44"),
    "ipv6": ("connect [2A02:810d:0000:0000:aaaa:BBBB:cccc:0001]:29500", "2A02:810d"),
    "ipv6 short": ("from 2a02:810d::1:2 port 3", "2a02:810d::1:2"),
    "mapped": ("[::ffff:10.20.30.45]:29500", "10.20.30.45"),
    "kernel table": ("   0: 2E1E140A:1F90 00000000:0000 0A", "2E1E140A"),
    "mac": ("link/ether 0c:42:a1:5e:7f:10 brd ff:ff:ff:ff:ff:ff", "0c:42:a1:5e:7f:10"),
    "boot id": ("boot_id 5f0c1a9e-1111-4e49-924a-ff40a5a788f2", "5f0c1a9e"),
    "gpu uuid": ("GPU-29f71c04-c19c-a613-3a04-e9b59fd1a722, NVIDIA H200", "29f71c04"),
    "nodelist": ("SLURM_JOB_NODELIST=kite[007-009,012]", "kite[007"),
    "nodelist member": ("srun: error: kite008: task 3: Killed", "kite008"),
    "hostname": ("HOSTNAME=pulsar-a", "pulsar-a"),
    "syslog": ("Nov 15 05:51:12 blazar kernel: [ 1.2] NVRM: Xid (PCI:0000:3b:00): 79", "blazar"),
    "home": ('File "/home/mkowalski/train.py", line 3, in main', "mkowalski"),
    "users": ("/data/users/rjankovic/run1", "rjankovic"),
    "scratch": ("saved to /scratch/tnguyen7/ckpt", "tnguyen7"),
    "user alone": ("mkowalski said so", "mkowalski"),
    "env user": ("USER=okafor", "okafor"),
    "e-mail": ("mail b.schneider@zeta-corp.com now", "b.schneider"),
    "account": ("#SBATCH --account=zeta-llm-2", "zeta-llm-2"),
    "account env": ("SLURM_JOB_ACCOUNT=zeta-llm-3", "zeta-llm-3"),
    "prompt": ("hmiller@quasar:~/x$ ls", "hmiller"),
    "uid": ("uid=1003(dsilva) gid=1003(zetagrp) groups=1003(zetagrp)", "dsilva"),
    "url host": ("http://grafana-zeta:3000/d/1", "grafana-zeta"),
    "bucket": ("s3://zeta-train-data/shard0", "zeta-train-data"),
    "arn": ("arn:aws:iam::210987654321:role/x", "210987654321"),
}
PRIVATE_KEY = (
    "-----BEGIN OPENSSH PRIVATE KEY-----\n"
    + "\n".join(rnd(64, seed=s) for s in range(4))
    + "\nAQID\n-----END OPENSSH PRIVATE KEY-----\n"
)
HARMLESS = """\
x1:812:900 [3] NCCL INFO comm 0x7f1234567890 rank 3 nranks 4 cudaDev 3 nvmlDev 3 busId 6000 commId 0x69f5df2b75f53db7 - Init COMPLETE
[rank3]:[E1115 10:00:00.123456789 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=15, OpType=ALLREDUCE, NumelIn=1024)
  File "/usr/lib/python3.11/site-packages/torch/nn/parallel/distributed.py", line 1511, in _run_ddp_forward
_ZN4c10d16ProcessGroupNCCL8WorkNCCL15checkTimeoutESt8optionalINSt6chrono8durationIlSt5ratioILl1ELl1000EEEEE
127.0.0.1:29500 [::1]:29500 0.0.0.0 255.255.255.0 mlx5_0:1 eth0 torch 2.13.0 driver 580.159.04 cudnn 9.10.2.21 version 9.10.2.21
commit 8bec84f947464e49924aff40a5a788f2aaaaaaaa tokens=4096 eos_token_id=2 pad_token=0 num_tokens: 12 key: store_based_barrier_key:1
torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:93, invalid usage
see https://pytorch.org/docs/stable/distributed.html and NCCL_SOCKET_IFNAME=eth0 TORCH_NCCL_TRACE_BUFFER_SIZE=2000
"""
