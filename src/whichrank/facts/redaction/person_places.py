"""Where users, accounts, people and serial numbers stand in text."""

from __future__ import annotations

import re

from whichrank.facts.redaction.places import EDGE, IS, PATH, QUOTE, SLASH, USER, Place, paths, places

_GROUPED = r"[a-z]{0,8}users?(?:external|internal)?|people|staff|faculty|students?|guests?"
"""Folders of homes that hold those of a kind of people."""
_HOMES = rf"home\d{{0,3}}|homes|Users|{_GROUPED}|usr\d|u\d{{0,2}}|members|personal|usuarios|profiles"
_SCRATCHES = r"scratch[\w\-]{0,12}|netscratch|gscratch|flash|nobackup|cfs"
_BEHIND = rf"(?={SLASH}|[\s\0\"'`:;,)\]}}<>|&*?!]|\.(?!\w)|\\[nrt]|$)"

SURE_USERS = paths(
    (
        "home users user people staff student members personal usuarios profiles usr /u \\\\u %2fu",
        rf"{SLASH}(?:{_HOMES})\$?{SLASH}(?:(?:[a-z]|{_GROUPED}){SLASH})?" + PATH + _BEHIND,
    ),
    (
        "media",
        rf"{SLASH}media{SLASH}" + PATH + rf"(?={SLASH})",
    ),
) + places(
    (
        "user logname author_name committer_name entity actor login",
        r"(?:^|(?<=[\n\0 ;\"']))(?:export )?(?:USER|LOGNAME|USERNAME|SUDO_USER|SLURM_JOB_USER|PBS_O_LOGNAME|"
        r"LSB_JOB_USER|USER_NAME|"
        r"NB_USER|JUPYTERHUB_USER|GIT_AUTHOR_NAME|GIT_COMMITTER_NAME|WANDB_USERNAME|WANDB_ENTITY|HF_USERNAME|REMOTE_USER|KRB5_USER|"
        r"DOMINO_USER_NAME|DB_USER|PGUSER|MYSQL_USER|POSTGRES_USER|KUBE_USER|GITHUB_ACTOR|GITLAB_USER_LOGIN|GITLAB_USER_NAME)"
        + IS
        + USER,
    ),
    (
        "uid= gid=",
        r"\b[ug]id=\d{1,10}\(" + USER,
    ),
    (
        "whoami",
        r"\bwhoami(?:\\n|\W){1,4}" + USER,
    ),
    (
        "sudo:",
        r"\bsudo:\s{1,4}" + USER + r"(?= : )",
    ),
    (
        "accepted failed session",
        r"\b(?:Accepted \w+|Failed password|session \w+) for (?:user )?(?:invalid user )?"
        + USER
        + r"(?= from|\(|\s|$)",
    ),
    (
        "cron",
        r"\bCROND?\[\d{1,10}\]: \(" + USER + r"(?=\) )",
    ),
    # A user of a Windows domain
    (
        "\\",
        r"(?i)\b(?:user|account|logon|login|owner|by|as|for)[:= ]{1,2}[A-Za-z][\w\-]{1,15}\\{1,4}(?![nrt]\b)" + USER,
    ),
    (
        "\\",
        r"\b[A-Z][A-Z0-9\-]{2,15}\\{1,4}" + USER + r"(?= (?:has )?(?:logged|signed|authenticated|connected)\b)",
    ),
    (
        "~",
        r"(?<![\w/])~" + USER + r"(?=/)",
    ),
)
SURE_USERS += (Place(re.compile(r"\bUser <" + USER + r"(?=>)"), ("user <",)),)  # LSF
"""A person stands there, whatever the name is."""

_SHARED = (
    r"lustre|gpfs|fsx|beegfs|nfs|efs|work|mnt|data|projects?|proj|ceph|weka|vast|pfs|panfs|storage|shared|export|groups?|vol\\d{0,3}|"
    r"cluster|datasets?"
)
MAYBE_USERS = paths(
    (
        (
            "lustre gpfs fsx beegfs nfs efs work mnt data proj ceph weka vast pfs panfs storage shared export "
            "group vol cluster"
        ),
        rf"(?<![\w.]){SLASH}(?:{_SHARED}){SLASH}(?:[a-z]{{1,8}}\d{{1,4}}{SLASH})?" + PATH + rf"(?={SLASH})",
    ),
) + places(
    (
        "userid groupid",
        r"\b(?:User|Group)Id=" + USER + r"(?=\()",
    ),
    (
        "pts/ tty",
        r"^" + USER + r"(?=[ \t]+(?:pts/|tty)\d)",
    ),
    (
        "uid= cn=",
        r"(?i)\b(?:uid|cn|samaccountname)=" + USER + r"(?=,)",
    ),
    (
        "",
        r"^" + USER + r"(?=[ \t]+\d{1,8}[ \t]+\d{1,3}\.\d[ \t]+\d{1,3}\.\d[ \t])",
    ),
    (
        "scratch flash nobackup cfs",
        rf"{SLASH}(?:{_SCRATCHES}){SLASH}(?:[a-z]{SLASH})?" + PATH + _BEHIND,
    ),
    (
        (
            "user login owner author logname submitted created launched uploader run_as runas requester started "
            "committer operator uname principal creator"
        ),
        r"(?i)(?<![a-z])(?:user|username|user_?name|user_?id|login|owner|author|logname|submitted_?by|created_?by|launched_?by|uploader|"
        r"run_?as|requester|started_?by|committer|operator|userid|uname|principal|creator)"
        rf"(?:{QUOTE})?\s{{0,10}}[=:]\s{{0,3}}(?:{QUOTE})?(?!\s)" + USER,
    ),
    (
        "--",
        r"(?i)--(?:user|username|uid|owner|run-as|login|chuid)(?:[ =]|" + QUOTE + r",\s{0,3}" + QUOTE + r")" + USER,
    ),
    (
        "logged logging signed authenticated running executing impersonating",
        r"(?i)\b(?:logg(?:ed|ing) (?:in|on)|signed in|authenticated|running|executing|impersonating)"
        r" as:? "
        r"(?:user )?[\"'`]?" + USER + r"(?=[\s\"'`(,;:.]|$)",
    ),
    (
        "\\",
        r"\b[A-Z][A-Z0-9\-]{2,15}\\{1,4}(?![nrtbfuvx])" + USER,
    ),
    (
        "squeue sacct scancel sudo runuser pkill",
        r"\b(?:squeue|sacct|scancel|sudo|runuser|pkill)\b[^\n;|&]{0,80}? -[uU] ?" + USER,
    ),
    (
        "uid= gid= groups=",
        r"(?<=\d\()" + USER + r"(?=\)(?:,| |$))",
    ),
    (
        "user",
        r"(?i)\b(?:for|by|as|of|from|invalid) user:? [\"'`]?" + USER + r"(?=[\s\"'`(,;:.]|$)",
    ),
    (
        "@",
        EDGE + r"(?<!/)(?P<n>[^\W\d_][\w.\-]{0,31})(?=@[A-Za-z][\w.\-]{0,80}(?::[~/]| |$|[\]:\"',)]))",
    ),
    (
        "tmp shm",
        rf"{SLASH}(?:tmp|shm){SLASH}(?:torchinductor|pip|ray|tmux|ssh|vscode|triton|matplotlib|numba|jupyter|runai|hf|cache|"
        r"pytest-of)[_\-]" + PATH + _BEHIND,
    ),
    (
        "spool mail",
        rf"{SLASH}var{SLASH}(?:spool{SLASH}(?:cron|mail)(?:{SLASH}crontabs)?|mail){SLASH}" + PATH,
    ),
    (
        "",
        r"^" + USER + r"(?=:x?:\d{1,6}:\d{1,6}:)",
    ),
    (
        "",
        r"^" + USER + r"(?= +\d{2,8} +\d{1,3}\.\d +\d{1,3}\.\d +\d+ +\d+ )",
    ),
    (
        "",
        r"^[\-d][rwxsStT\-]{9}[.+@]? +\d+ " + USER + r"(?= )",
    ),
    (
        "",
        r"^ *\d{3,9}(?:[._]\d+|\.\w+)? +[\w\-]{2,12} +[\w.\-]{1,40} +"
        + USER
        + r"(?= +(?:R|PD|CG|CD|F|TO|S|RUNNING|PENDING|COMPLETED|FAILED) )",
    ),
)
"""A person, unless the name is a word of the trade."""

ACCOUNTS = places(
    (
        "account slurm_ project subscription entity tenant org job",
        r"(?:^|(?<=[\n\0 ;\"']))(?:export )?(?:SLURM_JOB_ACCOUNT|SBATCH_ACCOUNT|SALLOC_ACCOUNT|SLURM_ACCOUNT|"
        r"SLURM_CLUSTER_NAME|SLURM_JOB_RESERVATION|SLURM_JOB_QOS|PBS_ACCOUNT|PROJECT_ID|"
        r"GOOGLE_CLOUD_PROJECT|GCP_PROJECT|CLOUDSDK_CORE_PROJECT|AWS_ACCOUNT_ID|AZURE_SUBSCRIPTION_ID|WANDB_ENTITY|LSB_PROJECT_NAME|SLURM_JOB_GROUP|SLURM_JOB_NAME|PBS_JOBNAME|LSB_JOBNAME|TENANT|ORG(?:ANIZATION)?(?:_NAME)?)"
        rf"(?:{QUOTE})?\s{{0,2}}[=:]\s{{0,2}}(?:{QUOTE})?" + r"(?P<n>[A-Za-z0-9][\w.\-]{1,62})",
    ),
    (
        "account allocation reservation cluster tenant subscription org entity team project wckey job",
        r"(?i)(?<![a-z])(?:account|account_?name|account_?id|allocation|billing_?account|reservation|cluster_?name|tenant(?:_?id)?|subscription(?:_?id)?|organization|org_?name|namespace|entity|team|project_?id|charge_?account|wckey|job_?name)"
        rf"(?:{QUOTE})?\s{{0,3}}[=:]\s{{0,3}}(?:{QUOTE})?(?!\s)" + r"(?P<n>[A-Za-z0-9][\w.\-]{1,62})",
    ),
    (
        "-a -j account reservation project wckey job-name",
        (
            r"(?<![\w\-])(?:--account(?:=| )|-A ?|--reservation(?:=| )|--project(?:=| )|--wckey(?:=| )|"
            r"--job-name(?:=| )|-J )"
            r"(?P<n>[A-Za-z0-9][\w.\-]{1,62})"
        ),
    ),
)

ACCOUNTS += (
    Place(re.compile(r"\b(?:Project|(?:User|Job) Group) <(?P<n>[\w/.\-]{2,62})(?=>)"), ("project <", "group <")),
)  # LSF

REPOSITORIES = places(
    # Whose repository, model or run it is; those that publish the software of everybody stay.
    (
        "git@ github.com gitlab bitbucket huggingface.co wandb.ai",
        (
            r"(?i)(?:(?:github|gitlab|bitbucket)\.(?:com|org)[/:]|huggingface\.co/|wandb\.ai/)"
            r"(?!(?:pytorch|nvidia|nvidia-\w+|huggingface|microsoft|deepspeedai|facebookresearch|meta-llama|google|openai"
            r"|rocm|amd|ray-project|openucx|open-mpi|linux-rdma|ofiwg|aws|python|numpy|lightning-ai|triton-lang|datasets"
            r"|models|spaces|docs|api|authorize|settings|site)/)(?P<n>[A-Za-z0-9][\w.\-]{1,62})(?=/)"
        ),
    ),
    (
        ".git",
        r"(?<=[:/])(?!pytorch/|nvidia/|NVIDIA/|huggingface/)(?P<n>[A-Za-z0-9][\w.\-]{1,62})(?=/[\w.\-]{1,100}\.git\b)",
    ),
)
"""An organisation or a person stands there, whatever the name is."""

SERIALS = Place(
    re.compile(
        r"(?i)\b(?:b?ssid|serial(?:[ _\-]?(?:number|no\.?|#))?|chassis serial number|board serial|(?:node|port|"
        r"system image|sys_?image|node_?desc)[ _]?guid|guid|machine[_\- ]?id|asset tag|product uuid|service tag|"
        r""
        r"host ?id|gpu_?serial|module_?id)(?:[\"'])?(?:\s{0,60}[:=>]\s{0,6}(?:[\"'])?|\s{1,3}is\s{1,3}|\s{1,"
        r"3}(?=[\w\-]*\d{5}))(?P<n>(?:0x)?[A-Za-z0-9][A-Za-z0-9:.\-]{3,63})"
    ),
    ("serial", "ssid", "guid", "machine", "asset", "uuid", "tag", "host id", "hostid", "module"),
)
EMAIL = Place(
    re.compile(
        r"(?<![\w.+\-])(?P<user>[\w.+%\-]{1,64})@(?P<domain>[A-Za-z0-9](?:[A-Za-z0-9\-]{0,62})(?:\.[A-Za-z0-9\-]{1,62}){1,8})(?![\w])"
    ),
    ("@",),
    within_word=True,
)
PERSON = Place(
    re.compile(r"(?P<n>(?:[^\W\d_][\w.'\-]{0,30}[ \t]){1,4}(?:[^\W\d_][\w.'\-]{0,30})?)(?=[ \t]?<[\w.+%\-]{1,64}@)"),
    ("@",),
)
ADDRESSED = Place(
    re.compile(
        r"(?P<n>(?<!\w)[A-Z\u00c0-\u00de][\w.'\-]{0,30}(?: [A-Z\u00c0-\u00de][\w.'\-]{0,30}){1,3})"
        r"(?=,? \(?(?:mailto:)?[\w.+%\-]{1,64}@)"
    ),
    ("@",),
)
"""A name with an address behind it, in brackets or without."""
AUTHOR = Place(
    re.compile(
        r"(?im)(?P<head>(?:^|(?<=[{,\[ \t\"']))(?:author|committer|signed-off-by|maintainer|contact|reported-by|"
        r"gecos|reporter|assignee|submitter|requester|approver|reviewer|on-?call|login:\s{1,4}\S{1,64}\s{1,40}name|"
        r"full[ _]?name|display[ _]?name|real[ _]?name|(?<=\tname)|(?<![\w.\-])name(?= = [A-Z]))"
        r"[\"']?\s{0,3}[:=]\s{0,3}[\"']?)(?P<n>(?-i:[A-Z\u00c0-\u00de]|\\u00[cd][0-9a-f])[\w.'\-\\]{1,40}(?: "
        r"[\w.'\-\\]{1,40}){1,4})"
    ),
    (
        "author",
        "committer",
        "signed-off",
        "maintainer",
        "contact",
        "reported-by",
        "gecos",
        "name",
        "report",
        "assignee",
        "submitter",
        "requester",
        "approver",
        "reviewer",
        "on-call",
        "oncall",
    ),
)
GECOS = Place(
    re.compile(
        r"(?m)(?P<head>(?:^|(?<=[\s\"']))[\w.$\-]{1,64}:[x*!]{0,2}:\d{1,10}:\d{1,10}:)"
        r"(?P<n>[^\W\d_][\w.'\-]{0,30}(?: [\w.'\-]{1,30}){1,4})"
    ),
    (":x:", ":*:", ":!:"),
)
"""The fifth field of /etc/passwd."""
BRACKETED = Place(
    re.compile(r"(?<=@)(?P<head>[\w.\-]{3,100} \()(?P<n>[^\W\d_][\w.'\-]{1,30}(?: [\w.'\-]{1,30}){1,3})(?=\))"), ("@",)
)
UIDS = Place(
    re.compile(
        r"(?i)(?:\b(?:uid|auid|loginuid|oom_uid|user ?id)[=:_][ \t]{0,8}(?:\w{1,40}\()?)(?P<n>[1-9]\d{3,9})(?!\d)"
    ),
    ("uid", "userid", "user id"),
)
CARD = re.compile(r"(?<![\d.])\d{4}([ \-])\d{4}\1\d{4}\1\d{1,7}(?!\.?\d)")
"""A card's number, if its last digit fits."""
SOCIAL_HINT = re.compile(r"-\d\d-\d{4}")
SOCIAL = re.compile(r"(?<![\w.\-])(?!000|666|9)\d{3}-(?!00)\d\d-(?!0000)\d{4}(?![\w.\-])")
"""A social security number of the USA."""
PHONE = Place(
    re.compile(
        r"(?:(?<![\w+.])(?=\+)|(?i:(?:phone|mobile|\btel|pager|on-call)[:. ]{1,3}))"
        r"(?P<n>\+\d{1,3}[ .\-]?\(?\d{1,4}\)?(?:[ .\-]\d{2,5}){2,4}(?!\d)"
        r"|\(?\d{3,5}\)?[ .\-]\d{3,4}[ .\-]?\d{3,5}(?!\d))"
    ),
    ("+", "phone", "mobile", "tel:", "tel.", "pager", "on-call"),
)
