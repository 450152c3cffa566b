"""Where names of hosts stand in text."""

from __future__ import annotations

import re

from whichrank.facts.redaction.places import EDGE, IS, QUOTE, Place, places

_H = r"(?P<n>[A-Za-z][A-Za-z0-9\-]{0,62}(?:\.[A-Za-z0-9\-]{1,62}){0,8})"
"""A host's name; a list of hosts may follow in brackets."""
_HN = r"(?P<n>[A-Za-z0-9][A-Za-z0-9\-_]{0,62}(?:\.[A-Za-z0-9\-_]{1,62}){0,8})"
_STAMP = (
    r"(?:<\d{1,3}>(?:1 )?)?(?:[A-Z][a-z]{2} {1,2}\d{1,2} (?:\d{4} )?\d\d:\d\d:\d\d(?:\.\d{1,9})?"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+\-]\d\d:?\d\d)?)"
)

_ENV = (
    r"(?:^|(?<=[\n\0 ;\"']))(?:export )?(?:HOSTNAME|HOST|MASTER_ADDR|SLURMD_NODENAME|SLURM_(?:JOB_|STEP_)?NODELIST|"
    r"SLURM_(?:SUBMIT_HOST|LAUNCH_NODE_IPADDR|TOPOLOGY_ADDR|SRUN_COMM_HOST|STEP_LAUNCHER_HOST|WORKING_CLUSTER)|SLURM_NODE_ALIASES|"
    r"PBS_O_HOST|NODE_NAME|POD_NAME|HOST_NAME|COMPUTERNAME|PET_RDZV_ENDPOINT|RDZV_ENDPOINT|NCCL_RAS_ADDR|NCCL_COMM_ID|MASTER|LSB_HOSTS|"
    r"SSH_CONNECTION|DISPLAY|HYDRA_BSTRAP_LOCALHOST|PMIX_HOSTNAME|HEAD_NODE|RAY_ADDRESS|RAY_HEAD_IP|GLOO_HOSTNAME|WORKER_HOSTS?|"
    r"HOSTLIST|NODELIST|NODES|HOSTS|CURRENT_HOST|SM_CURRENT_HOST)"
)
_ROLES = (
    r"(?:req|exc|alloc|batch|sched|submit|exec|login|execution|head|remote|master|slurmctld|control|peer|server|client|target|source|"
    r"destination|dest|local|leader|from|to|rendezvous|rdzv|coordinator|gateway|bastion|proxy|jump|database|db|ntp|dns|ldap|smtp|nfs|"
    r"license|mgs|mds|oss|mount)_?-?(?:node|host|hostname|nodelist|addr|address|server|endpoint)s?"
)
_SPEAKS = (
    r"(?:connect(?:ed|ing)?|connection|bind|bound|listen(?:ing)?|resolve|reach|route|contact|refused|reset|"
    r"closed|ping|lookup|lost|dial|dialing)"
)

SURE_HOSTS = places(
    # NCCL: host:pid:tid [device] NCCL, with what a launcher puts before
    (
        "nccl",
        EDGE + _HN + r"(?=:\d{1,10}:\d{1,10} (?:\[-?\d{1,4}\] |[\w./]+:\d+ |NCCL|\d))",
    ),
    (
        "nccl",
        EDGE + _HN + r"(?=:\d{1,10}:\d{1,10} \S{0,60} ?NCCL (?:INFO|WARN|TRACE|ERROR|ATTN))",
    ),
    # syslog and journalctl
    (
        "kernel: ]: systemd: sshd: sudo: cron: nvidia slurm",
        r"^\s{0,4}"
        + _STAMP
        + r" "
        + _HN
        + r"(?= (?:kernel|[\w./@\-]{1,60}\[\d{1,8}\]|systemd|sshd|sudo|CRON|nvidia-\w+|slurm\w+): )",
    ),
    (
        "job step",
        r"\b(?:JOB|STEP) [\d.]+ (?:ON|on) " + _H,
    ),
    (
        "host node_name nodename fqdn computer",
        rf"(?i)(?<![a-z])(?:host|hostname|host_name|node_name|nodename|fqdn|computer)(?:{QUOTE})\s{{0,3}}:\s{{0,3}}(?:{QUOTE})"
        + _HN,
    ),
    (
        (
            "host master_addr slurm nodelist node_name pod_name computername rdzv_endpoint nccl_ras nccl_comm_id "
            "master lsb_hosts ssh_connection display hostname head_node ray_ nodes"
        ),
        _ENV + IS + rf"\[?(?:{QUOTE})?" + _HN,
    ),
    (
        "hostname host_name nodename node_name fqdn computername switchname",
        r"(?i)(?<![a-z])(?:hostname|host_name|nodename|node_name|fqdn|computer_?name|switch_?name)"
        rf"\s{{0,2}}=\s{{0,2}}(?:{QUOTE})?" + _HN,
    ),
    (
        "slots",
        r"(?:^|(?<=[\s\]]))" + _H + r"(?=:?[ \t]+(?:slots|max_slots|max-slots)\s?=\s?\d)",
    ),
    # ibstat, ibnetdiscover, perfquery: "node3 mlx5_0", or with HCA-1
    (
        "node desc",
        r"(?i)\bnode[ _]?desc(?:ription)?[\"']?\s{0,3}[:=.]{1,60}\s{0,3}[\"']?(?!mlx|MT\d|Mellanox|Quantum|SwitchX)"
        + _HN,
    ),
    (
        "linux ",
        r"^Linux " + _HN + r" \d{1,2}\.\d{1,3}\.",
    ),
    (
        "hostname: ",
        r"\bStatic hostname: " + _HN,
    ),
    (
        "# ",
        r"(?i)# (?:kernel log|dmesg|journal|network namespace|state|processes|limits) of " + _HN,
    ),
)
"""A host stands there, whatever its name is."""

MAYBE_HOSTS = places(
    # "it hangs on `name-17`", as people write
    (
        "on from at to by host node of",
        (
            r"(?i)\b(?:on|from|at|to|by|of|hosts?|nodes?)[ :]{1,2}(?P<q>[`'\"])"
            r"(?P<n>(?=[a-z\-.]{0,40}\d)[A-Za-z][A-Za-z0-9\-]{2,62}(?:\.[A-Za-z0-9\-]{1,62}){0,8})(?P=q)"
        ),
    ),
    (
        "host node server machine switch router blade chassis",
        (
            r"(?i)\b(?:host|node|server|machine|switch|router|blade|chassis)s? "
            r"(?P<n>(?=[a-z\-]*\d)[A-Za-z][A-Za-z0-9\-]{2,"
            r"62}(?:\.[A-Za-z0-9\-]{1,62}){0,8})(?![\w(])"
        ),
    ),
    (
        "//",
        r"(?<![:\w/\\])//" + _H + r"(?=/)",
    ),
    (
        # Files that NCCL, kernels and launchers name after a host and a process
        ".log .txt .out .err .json .core",
        r"(?<=[./_])(?P<n>[A-Za-z][A-Za-z0-9\-]{3,62})(?=\.\d{2,8}\.(?:log|txt|out|err|json|core)\b)",
    ),
    # Open MPI, UCX and others: [host:pid] and [host:pid:thread:…]
    (
        "",
        r"\[" + _H + r"(?=:\d{3,8}(?::\d{1,8}){0,3}\])",
    ),
    (
        "]:",
        r"(?<=[\w\]:] )\[" + _H + r"\]:\d{2,5}\b",
    ),
    (
        "",
        r"^\s{0,4}" + _STAMP + r" " + _HN + r"(?= [\w./@\-]{1,60}: )",
    ),
    # A host of which something is told
    (
        "unreachable respond reachable offline down lost connection reboot drain timed",
        (
            r"(?:^|(?<=[\s:,;(]))(?P<n>(?=[A-Za-z\-]{0,40}\d)[A-Za-z][A-Za-z0-9\-]{2,62}(?:\.[A-Za-z0-9\-]{1,62}){0,8})"
            r"(?=:? (?:is |was |are |has |went |did |does |stopped |failed )?(?:not |to )?(?:been )?"
            r"(?:unreachable|reachable|respond|offline|down\b|lost\b"
            r"|connection (?:lost|closed|reset|refused|restored|timed out)|reboot|drain|timed out))"
        ),
    ),
    # A server and a folder of it: mount, df, fstab
    (
        ":/",
        r"(?:^|(?<=[\s\"'=]))" + _H + r"(?=:/[\w./\-]{0,200}[ \t]{1,40}(?:on[ \t]+/|/|\d))",
    ),
    # What PSM and launchers put before a line: host.pid:rank, host |
    (
        ":rank",
        r"(?:^|(?<=[\s>\]]))(?P<n>[A-Za-z][A-Za-z0-9\-]{1,62})(?=\.\d{1,8}:rank\d)",
    ),
    (
        "|",
        r"(?:^|(?<=\\n))(?P<n>(?=[A-Za-z\-]{0,40}\d)[A-Za-z][A-Za-z0-9\-]{2,62})(?=[ \t]{1,12}\| )",
    ),
    # Slurm, PBS, ssh and srun
    (
        "srun sbatch salloc slurmd slurmstepd prolog epilog",
        r"\b(?:srun|sbatch|salloc|slurmd|slurmstepd|prolog|epilog)[\w \-]{0,20}: (?:error|fatal|warning|info)?:? ?"
        + _H
        + r"(?=: )",
    ),
    (
        "node",
        r"(?i)\bnode(?:s|list|name|addr|hostname)?\(?s?\)?=" + _H,
    ),
    (
        "node host addr server endpoint backend",
        rf"(?i)\b{_ROLES}(?:{QUOTE})?\s{{0,3}}[=:]\s{{0,3}}(?:{QUOTE})?(?:\w+://)?" + _H,
    ),
    (
        "node machine instance pod server peer system_name addr by",
        r"(?i)(?<![a-z])(?:node|machine|instance|pod|pod_name|server|peer|system_name|node-name|instance_name|agent_host|addr|by)"
        rf"(?:{QUOTE})\s{{0,3}}:\s{{0,3}}(?:{QUOTE})" + _HN,
    ),
    (
        "addr rdzv host node include exclude server main_process_ip leader join",
        r"(?i)--?(?:master[_\-]addr|rdzv[_\-](?:endpoint|id[_\-]host)|host(?:s|list|file|name)?|node(?:list|s|name)?|include|exclude|"
        r"server|local[_\-]addr|head[_\-]node|main_process_ip|address|leader|joins?)(?:[ =]|"
        + QUOTE
        + r",\s{0,3}"
        + QUOTE
        + rf")\s{{0,3}}(?:{QUOTE})?"
        + _H,
    ),
    (
        " -w -h -x",
        r"(?<![\w\-])-[wHx] ?" + _H + r"(?=[\[,:\s]|$)",
    ),
    (
        "host node machine server peer computer instance",
        rf"(?i)\b(?:host|hostname|node|machine|server|peer|computer|instance)\s{{0,12}}(?::|is|was|named|=)\s{{1,12}}(?:{QUOTE})?"
        + _H,
    ),
    (
        "host node server machine peer agent",
        r"(?i)\b(?:on|from|to|at|by|of|with|ssh) (?:the )?(?:host|node|server|machine|remote host|peer|remote "
        r"peer|agent|worker node)s? "
        rf"(?:{QUOTE}|\[|\()?" + _H,
    ),
    (
        "connect bind bound listen resolve reach route contact refused reset closed ping lookup lost dial",
        rf"\b{_SPEAKS}\b(?: (?:to|by|from|on|with|for|host|socket|name|remote|peer|tcp|udp|address))* (?:\[|\(|'|\"|)"
        + _H
        + r"(?=\]?:\d{2,5}\b|[,\]] ?\d{2,5}\)| port \d|<\d{2,5}>)",
    ),
    (
        "getaddrinfo gethostbyname resolv name route unknown ssh scp rsync pdsh ping telnet nslookup dig",
        r"(?i)\b(?:getaddrinfo|gethostbyname|Could not resolve host|Temporary failure in name resolution|Name "
        r"or service not known|"
        r"No route to host|resolve hostname|unknown host|ssh(?: -[\w ]{1,60})?|scp|rsync|pdsh|ping(?: -[cW] "
        r"?\d+)?|telnet|nslookup|dig)"
        r"[:(\s]{1,3}(?:-w )?[\"']?(?:[a-z_][\w.\-]{0,31}@)?" + _H + r"(?=[\[,:;\s'\")]|$)",
    ),
    # What kubectl calls things: the kind, then the name
    (
        "pod/ pods/ node/ nodes/ set/ sets/ deployment job/ jobs/",
        (
            r"(?<![\w/])(?:pods?|nodes?|(?:stateful|daemon|replica|job)sets?|deployments?|\w{0,20}jobs?)"
            r"(?:\.[\w.]{1,40})?/(?P<n>[a-z0-9][a-z0-9\-]{2,62})(?![\w/])"
        ),
    ),
    # pdsh, clush and ansible: what a host printed behind its name
    (
        ": ",
        r"^"
        + _H
        + r"(?=: (?:-?bash|sh|python[\d.]{0,5}|ssh|sudo|env|torchrun|mpirun|srun|Killed|Traceback|Permission|fatal"
        r"|ERROR|WARN|INFO|NCCL|command)\b)",
    ),
    (
        "connection session login link",
        r"\b(?:[Cc]onnection|[Ss]ession|[Ll]ogin|[Ll]ink) (?:to|with|from|on) "
        + _H
        + r"(?= (?:closed|refused|reset|lost|timed out|failed|dropped|is down|went down|was|has)\b)",
    ),
    (
        "",
        r"^(?:\d{1,3}\.){3}\d{1,3}[ \t]+" + _H + r"(?=[ \t\r\n#]|$)",
    ),
    (
        "@",
        r"(?<=@)" + _H + r"(?=:[~/]|[ \]]\S{0,80}[$#] |$|[\s\"',)])",
    ),
    (
        "worker rank process pid",
        r"\b(?:worker|rank|process|pid)[ :=#]{0,2}\d{1,7} ?(?:\(?(?:on|@|at) ?)" + _H,
    ),
    (
        "pid=",
        r"\b(?:ray::)?[A-Z]\w+\(pid=\d+, ip=" + _H,
    ),
    (
        "|",
        r"(?<![\w.\-/])" + _H + r"(?=\|\d{1,6}\|)",
    ),
    (
        "",
        r"^\d{1,4}: " + _H + r"(?=: (?:\[|NCCL|Traceback|WARN|ERROR|INFO))",
    ),
)
MAYBE_HOSTS += (
    Place(
        re.compile(r"(?i)\b(?:on|hosts?(?:\(s\))?) <(?:\d{1,4}\*)?" + _H + r"(?=>)"),
        ("on <", "host <", "hosts <", ") <"),
    ),
)  # LSF
"""A host, unless the name is a word of the trade."""

ASKED = ("hostname", "uname -n")
ANSWERED = re.compile(r"(?:hostname(?: -[fsA])?|uname -n)[ \t]{0,4}(?:\r?\n|\\n)" + _HN + r"(?=\s|\\n|[\"']|$)")
"""What those commands print."""

# Names that only a host has, wherever they stand.
SHAPES = Place(
    re.compile(
        r"(?:(?<![A-Za-z0-9\-.])|(?<=\\[nrt])|(?<=\dm)|(?<=%2F))"
        r"(?P<n>(?i:ip-\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3}|aks-[a-z0-9]+-\d+-vmss[a-z0-9]{3,8}|[a-z0-9\-]{1,40}vmss_?[0-9a-z]{3,8}"
        r"|gke-[a-z0-9\-]{8,80}|(?:[a-z0-9]{1,20}-){0,6}(?:node|host|worker|compute|hgx|dgx|nid|slave|master|gpu-?(?:node|host|srv|server|box|worker)|gpu(?=\d\d|-\d)"
        r"|login|head|cnode|[a-z]{2,16}(?:gpu|node|host|srv|hgx|dgx|cpu|worker)|(?:hgx|dgx|gpu|node|host|srv|cpu)[a-z]{3,16}|cn(?=\d\d)|bastion|jump|sm(?=\d\d\d)|a100|h100|h200|b200|gb200|v100|mi300x?|mi250|launcher|trainer|submit|frontend|mgmt|vm)-?\d{1,6}[a-z]?(?:-\d{1,6}){0,4}"
        r"|(?:[rx]\d{1,4}[cis]\d{1,3}(?:[nbs]\d{1,3}){1,3})|(?:[a-z0-9]{2,20}-){1,6}(?:worker|master|launcher|head|chief|ps)-\d{1,5}))"
        r"(?![A-Za-z0-9_]|-[A-Za-z0-9]|\.py)"
    ),
    (
        "node",
        "host",
        "worker",
        "compute",
        "hgx",
        "dgx",
        "nid",
        "slave",
        "master",
        "gpu",
        "login",
        "head",
        "cn",
        "bastion",
        "jump",
        "sm",
        "a100",
        "h100",
        "h200",
        "b200",
        "v100",
        "mi300",
        "mi250",
        "launcher",
        "trainer",
        "submit",
        "frontend",
        "mgmt",
        "vm",
        "ip-",
        "gke-",
        "ps-",
        "chief",
    ),
    within_word=True,
)

NODELIST = Place(
    re.compile(
        r"(?<![\w.\-])(?P<head>[A-Za-z][A-Za-z0-9.\-]{0,62}?)\[(?P<inner>\d{1,6}(?:-\d{1,6})?(?:,\d{1,6}(?:-\d{1,6})?){0,500})\](?P<tail>[A-Za-z0-9.\-]{0,62})"
    ),
    ("[",),
    within_word=True,
)
LISTED = Place(
    re.compile(
        r"(?i)(?:node_?-?list|hostlist|hosts|nodes|nodename|-w|--exclude|--include|LSB_HOSTS|BatchHost|"
        r"exc_?node|req_?node)[\"']?\s{0,2}(?:\([\w ]{1,20}\))?[=: ]\s{0,2}[\"'\[]{0,2}"
        r"(?P<list>[A-Za-z][\w.\-\[\],:; ]{1,2000})"
    ),
    ("node", "host", "-w", "--exclude", "--include"),
)

# Endings that no attribute of Python has, and those that need more to be a domain.
_SURE = (
    "com|net|org|edu|gov|mil|internal|lan|corp|intra|intranet|localdomain|localnet|example|invalid|arpa|cloud|eu|de|fr|ch|uk|nl|se|fi|dk|cz|ru|cn|jp|kr|tw|hk|sg|au|nz|ca|br|mx|za|il|ir|"
    "tr|gr|pt|hu|ro|ua|ie|ac|lu|sk|si|hr|bg|lt|lv|ee|kz|sa|ae|qa|th|vn|ph|ar|cl|onmicrosoft|hpc|cern|amazonaws"
)
_UNSURE = (
    "io|ai|co|local|test|home|private|app|dev|int|info|me|us|tech|systems|network|cluster|svc|consul|site|"
    "online|biz|at|it|es|be|no|in|pl|is|science|energy|center|institute|group|company|zone|run|sh"
)
FQDN = Place(
    re.compile(
        r"(?:(?<![A-Za-z0-9_.\-@])|(?<=\\[nrt])|(?<=\dm)|(?<=%2F)|(?<=%40))(?P<n>(?:[A-Za-z0-9](?:[A-Za-z0-9\-]{0,61}[A-Za-z0-9])?\.){1,9}"
        rf"(?i:(?P<sure>{_SURE})|(?P<unsure>{_UNSURE})))(?![A-Za-z0-9_]|-[A-Za-z0-9]|\.[A-Za-z]{{2,}}|\()"
    ),
    tuple(f".{end}" for end in f"{_SURE}|{_UNSURE}".split("|")),
    within_word=True,
)
URL_HOST = Place(
    re.compile(
        r"(?<![\w])(?P<scheme>[A-Za-z][A-Za-z0-9+.\-]{1,20}):\\?/\\?/(?:[^\s/@\"'<>]{0,200}@)?(?P<n>[A-Za-z0-9][A-Za-z0-9._\-]{0,200})"
    ),
    (":/", ":\\\\/"),
)
