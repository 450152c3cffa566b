"""Where secrets stand in text: beside a name, behind a flag, in a header, in a URL, in a block."""

from __future__ import annotations

import re

_Q = r"(?:\\{0,3}[\"'`])"
_KEYWORD = (
    r"passw(?:or)?d|passwd|passphrase|passcode|passwort|kennwort|contrase\w|mot_?de_?passe|pwd|secret|token|credential|creds|"
    r"api[_.\- ]?key|(?:access|private|signing|encryption|storage|account|master|shared|service|client|app|ssh|"
    r"session|deploy|"
    r"hmac|aes|rsa|subscription|admin|auth|license|wandb|secret|public|root|user|db|database|identity|recovery|webhook|rest|"
    r"cluster|munge|ngc|comet|hub|team|org|project)[_.\- ]?key|authorization|bearer|cookie|session[_\-]?id|"
    r"sessionid|csrf|xsrf|"
    r"connection[_\-]?string|conn[_\-]?str|dsn|webhook|otp|jwt|keytab|seed[_\-]?phrase|mnemonic|(?<=[_\-.])(?:key|pass|pw|pat|sas|psk|auth|sig|pin)"
    r"|(?<![a-z])(?:pass|pw|psk|auth|sig|signature|pin|sas|pat)(?![a-z])|(?<=[a-z])pass(?![a-z])|(?<=[a-z])(?-i:Key|Pass|Pwd|Auth|Sig)|(?<![a-z])key(?![a-z])"
)
_TAIL = r"[\w.\-]{0,40}"
_SIGNS = r"[ \t]{0,40}\s{0,4}(?::=|=>|={1,3}|:)\s{0,4}[ \t]{0,40}"
_QUOTED = (
    r"\"(?P<q4>[^\"\\\r\n]{0,1024}(?:\\.[^\"\\\r\n]{0,1024}){1,64})\"|"
    r"\\{0,3}\"(?P<q2>[^\"\r\n]{1,8192}?)\\{0,3}\"|\\{0,3}'(?P<q1>[^'\r\n]{1,8192}?)\\{0,3}'|`(?P<q3>[^`\r\n]{1,8192})`"
)
_BARE = r"(?P<bare>[^\s\"'`,;|<>()\[\]{}]{1,8192})"
WORDS = (
    "pass",
    "pwd",
    "secret",
    "token",
    "cred",
    "key",
    "authorization",
    "bearer",
    "cookie",
    "session",
    "csrf",
    "xsrf",
    "conn",
    "dsn",
    "webhook",
    "otp",
    "jwt",
    "seed",
    "mnemonic",
    "pw",
    "psk",
    "auth",
    "sig",
    "pin",
    "sas",
    "pat",
    "kennwort",
    "contrase",
    "mot_de",
    "motdepasse",
)
"""One of these is in every name of a secret."""
SCHEMES = (
    "bearer",
    "basic ",
    "token ",
    "digest ",
    "negotiate ",
    "ntlm ",
    "apikey ",
    "api-key ",
    "splunk ",
    "genie",
    "key ",
)
COMMANDS = (
    "sshpass", "mysql", "mariadb", "curl", "wget", "http", "redis-cli", "ldap", "docker login", "htpasswd", "ipmitool",
    "smbclient", "openssl", "login", "echo", " -p ",
)  # fmt: skip
ASSIGNED = re.compile(
    rf"(?P<key>(?:{_KEYWORD}){_TAIL})(?P<sep>{_Q}?(?:\[\d*\])?\]?{_SIGNS})(?:{_QUOTED}|{_BARE})", re.IGNORECASE
)
BEFORE_SIGN = re.compile(rf"[\w.\- ]{{0,64}}{_Q}?(?:\[\d*\])?\]?\s{{0,44}}[=:]")
"""From a word of secrets to the sign behind its name: where this fails, nothing is assigned."""
LONGEST_BEFORE = 24
"""How far before such a word a name begins: `subscription-key`."""
ENV_LINE = re.compile(
    r"(?:^|(?<=[\n\0]))(?P<head>[ \t]{0,20}(?:export[ \t]+|set[ \t]+|setenv[ \t]+|declare -x[ \t]+|ENV[ \t]+|"
    r"Environment=\"?)?)"
    r"(?P<key>[A-Za-z_][A-Za-z0-9_.\-]{1,120})(?P<sep>[ \t]{0,40}[=:][ \t]{0,40}|[ \t]+(?=\S+$))"
    r"(?P<value>[^\r\n\0]{1,8192})"
)
FLAG = re.compile(
    rf"(?<![\w\-])(?P<key>--?[A-Za-z][\w.\-]{{1,60}})(?P<sep>=|{_Q}\s{{0,3}},\s{{0,3}}|[ \t]{{1,4}}(?:\\\n[ \t]*)?|\0)"
    rf"(?:{_QUOTED}|{_BARE})"
)
SAID = re.compile(
    r"(?P<key>passw(?:or)?d|passphrase|secret|token|api[ _\-]?key|pin|credentials?)(?P<sep>\s{1,3}(?:is|was|are|"
    r"set to|of|for [\w.@\-]{1,60} is)\s{0,3}:?\s{0,3})"
    rf"(?:{_QUOTED}|{_BARE})",
    re.IGNORECASE,
)
HEADER = re.compile(
    rf"(?P<key>(?:proxy-)?authorization|(?:set-)?cookie2?|x-[a-z\-]{{0,30}}(?:token|key|auth|secret|signature|session)[a-z\-]{{0,20}}|private-token"
    rf"|job-token)(?P<sep>{_Q}?\s{{0,3}}[:=,]\s{{0,3}}(?:b?{_Q})?)(?P<value>[^\r\n\"'`\0]{{1,8192}})",
    re.IGNORECASE,
)
SCHEME = re.compile(
    r"\b(?P<key>bearer|basic|token|digest|negotiate|ntlm|apikey|api-key|splunk|genie|key)(?P<sep>[ \t]{1,3}|%20|\+)"
    r"(?P<value>[A-Za-z0-9+/=._~\-]{8,8192})",
    re.IGNORECASE,
)
PLAIN = re.compile(
    r"(?i)(?P<key>\b(?:passw(?:or)?d|passphrase|passwd|pw|secret key))(?P<sep>[ \t]{1,3})(?P<value>[^\s\"'`,"
    r";]{6,200})(?=[\s\"'`,;)]|$)"
)
"""A word and a password behind it, without a sign between them."""
HTPASSWD = re.compile(
    r"(?P<head>\bhtpasswd\b[^\n]{0,100}?[ \t]-\w{0,8}b\w{0,8}[ \t]\S{1,200}[ \t])(?P<user>\S{1,128})[ \t]{1,4}"
    r"(?P<value>\S{1,256})"
)
PAIR = re.compile(
    r"(?i)(?P<head>(?:auth|credentials?|login|userpass|basic_auth)[\"']?\s{0,3}[=:]?\s{0,3}[\[(]{1,2})(?P<q>[\"'])(?P<user>[^\"'\n]{1,128})(?P=q)"
    r"(?P<sep>\s{0,3},\s{0,3})(?P<r>[\"'])(?P<value>[^\"'\n]{1,256})(?P=r)"
)
"""auth=("user", "password")."""
NAME_VALUE = re.compile(
    r"(?i)(?P<head>\bname[\"']?\s{0,3}[:=>]\s{0,3}[\"']?)(?P<key>[\w.\-]{2,100})(?P<sep>[\"']?(?:</name>)?\s{0,3},?\s{0,60}[<\"']?value[\"']?\s{0,3}[:=>]\s{0,3}[\"']?)"
    r"(?P<value>[^\s\"'<,][^\"'<\r\n]{0,4096})"
)
"""`name: DB_PASSWORD` and its value in the next line, as in Kubernetes."""
NETRC = re.compile(
    r"(?P<head>\b(?:login|user|account)\s{1,4})(?P<user>[^\s]{1,128})(?P<sep>\s{1,20}password\s{1,4})(?P<value>[^\s]{1,512})"
)
PGPASS = re.compile(
    r"(?m)(?P<head>^[A-Za-z*\d][\w.*\-]{0,200}(?<!\.py)(?<!\.c[cu])(?<!\.cpp):(?:\d{2,5}|\*):[A-Za-z*][\w.*\-]{0,62}:"
    r"[A-Za-z*][\w.*\-]{0,62}:)(?P<value>[^\s:]{3,256})$"
)
"""host:port:database:user:password."""
PGPASS_HINT = re.compile(r":(?:\d{2,5}|\*):[A-Za-z*]")
OTHER_FLAGS = re.compile(r"\b(?:squeue|sacct|srun|sbatch|salloc|scancel|sinfo|(?:docker|podman|nerdctl) run)\b")
"""Commands whose -p is something else."""
SHORT_FLAGS = re.compile(
    r"(?P<head>(?<![\w\-])(?:sshpass\s{1,3}-p\s{0,3}|(?:mysql|mysqldump|mariadb|mysqladmin)\b[^\n]{0,200}?\s-p|(?:curl|"
    r"wget|http)\b[^\n]{0,400}?\s(?:-u|--user|--proxy-user)[ =]{1,3}"
    r"|(?:redis-cli)\b[^\n]{0,200}?\s-a\s{1,3}|(?:ldapsearch|ldapwhoami)\b[^\n]{0,200}?\s-w\s{1,3}|docker "
    r"login\b[^\n]{0,200}?\s-p\s{1,3}"
    r"|htpasswd\b[^\n]{0,100}?\s-b\w*\s\S+\s\S+\s|openssl\b[^\n]{0,200}?\s(?:-k\s|-K\s|-pass(?:in|out)"
    r"?\s(?:pass:)?)\s{0,3}|ipmitool\b[^\n]{0,200}?\s-P\s{1,3}|smbclient\b[^\n]{0,200}?\s-U\s{1,3}\S+%|wandb "
    r"login\s{1,3}(?:--relogin\s)?"
    r"|-[uU][ =]{1,3}[\"']?(?!\S{1,200}\.py\b)[\w.@$\-]{1,64}[\"']?\s{1,3}-[pP]\s{1,3}(?!\d{1,5}(?::\d{1,5})?\b)"
    r"|huggingface-cli login --token\s|echo\s{1,3}(?=\S+\s*\|\s*(?:sudo -S|passwd|docker login|wandb login|gh auth)))"
    r")(?P<value>[\"']?[^\s\"']{2,512}[\"']?)"
)
URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.\-]{1,30}(?::[a-z0-9+]{2,20})?)(?P<sep>:\\?/\\?/)(?P<rest>[^\s\"'<>`\0]{1,8192})"
)
PEM_BEGIN = re.compile(r"-----BEGIN[ A-Z0-9_\-]{0,60}-----|---- BEGIN SSH2[ A-Z0-9]{0,60} ----|PuTTY-User-Key-File-\d:")
PEM_END = re.compile(r"-----END[ A-Z0-9_\-]{0,60}-----|---- END SSH2[ A-Z0-9]{0,60} ----|Private-MAC:")
PEM_ONE = re.compile(
    r"-----BEGIN(?P<what>[ A-Z0-9_\-]{0,60})-----(?P<body>[^\r\n]{1,200000}?)(?:-----END[ A-Z0-9_\-]{0,60}-----|"
    r"(?=[\"'\r\n]|$))"
)
WEBHOOK = re.compile(
    r"hooks?\.|webhook|/hooks?/|discord(?:app)?\.com/api|api\.telegram\.org/bot|chat\.googleapis\.com|ifttt\.com|pagerduty\.com|"
    r"opsgenie\.com|feishu\.cn|larksuite\.com|weixin\.qq\.com|dingtalk\.com|logic\.azure\.com|ingest\.|hc-ping\.com|ntfy\.sh|healthchecks\.io",
    re.IGNORECASE,
)
