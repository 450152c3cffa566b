"""What people call the parts of a job in which one rank may keep the others waiting."""

from __future__ import annotations

import re

from whichrank.facts.required_words import search

_WORDS: dict[str, str] = {
    "rank-stuck-in-checkpoint": (
        r"checkpoint\w{0,3}|ckpts?|\w{0,20}\.?distcp|consolidat\w{1,4}|state_dict|safetensors|save_pretrained|save_state|save_model"
        r"|(?:sav|writ|export|upload|merg)(?:e|es|ing)(?: of)? (?:\w{1,12} ){0,2}"
        r"(?:model|weights|adapters?|shards?|states?)"
        r"|(?:push|upload|copy|copi|sav|writ|stor|archiv|sync|flush|mov)\w{0,4} [^\n]{0,80}\.(?:pth?|ckpt|safetensors)"
    ),
    "rank-stuck-in-evaluation": (
        r"evaluat(?:e|es|ion|ing)|validat(?:e|es|ion|ing)|predict(?:s|ion|ing)"
        r"|generat(?:es|ing)|generation (?:loop|phase|step|of)|beam search|inference"
        r"|test(?:ing)? (?:set|loop|epoch)|eval(?=:| (?:set|loop|step|pass|phase|batch|prompts)\b)"
    ),
    "rank-stuck-in-preprocessing": (
        r"tokeni[sz](?:e|es|ing|ation)|pre-?process(?:es|ing)?|download(?:s|ing)?|prepare_data"
        r"|(?:prepar|index|cach|pack|filter|convert|extract|shuffl|load|map)(?:e|es|ing)(?: of)? (?:\w{1,12} ){0,2}"
        r"(?:data\w{0,4}|corpus|texts?|index\w{0,2}|features?|examples?|documents?|images?)"
        r"|build(?:s|ing)?(?: of)? (?:\w{1,12} ){0,2}(?:index\w{0,2}|cache|datasets?|vocab\w{0,6})"
    ),
    "rank-stuck-in-compile": (
        r"torch\.compile|re-?compil\w{1,5}|compil(?:es|ed|ing|ation)|compile(?=:)|(?:max-)?autotun\w{1,4}"
        r"|CUDA graph captur\w{1,3}|(?:fx|fx graph|aot\w{0,8}|compile|triton|inductor)[ _-]cache"
        r"|triton kernels?|inductor|(?:auto-?)?tun(?:es|ed|ing) (?:\w{1,12} ){0,2}kernels?"
    ),
}
_HELD_UP: dict[str, str] = {
    "storage-stall": (
        r"(?:nfs|lustre|gpfs|ceph|beegfs|weka|fuse|mount\w{0,3}|file ?system|server)\b.{0,60}"
        r"(?:not responding|still trying|timed out|timeout|unreachable|unavailable|hung|stale)"
        r"|stale (?:nfs )?file handle|blocked for more than \d+ seconds|(?:waiting|wait) for (?:the )?(?:mount|storage)"
    ),
    "stale-lock-or-store": (
        r"SoftFileLock|wait(?:s|ing)? (?:for|on|to acquire) (?:\S{1,60} ){0,3}(?:file ?)?lock"
        r"|lock\b(?: \S{1,60})? (?:is )?(?:held by|not acquired|busy|exists)"
        r"|(?<!no )lock (?:of|from|since|by)\b.{0,40}\b(?:wait\w{0,3}|owner|held|pid)\b|(?:stale|old) lock\b"
    ),
    "cpu-starved": (
        r"suggested max number of worker|cpus?\b.{0,30}\b(?:throttled|oversubscribed|overcommitted|starved)\b"
        r"|(?:oversubscrib|overcommit)\w{1,6}\b.{0,40}\b(?:cpus?|cores)\b"
        r"|(?:only|just) (?:\d{1,3}|one|two) (?:of \d{1,4} )?(?:\w{1,12} )?(?:cpus?|cores)\b"
    ),
    "rank-frozen": r"\b(?:(?<!<)frozen|freezing|suspended|paused|SIGSTOP|stopped by signal)\b",
    "conditional-collective": (
        r"skip(?:s|ped|ping)? (?:the |this |an? )?(?:\w{1,16} ){0,2}"
        r"(?:step|update|backward|sync\w{0,8}|iteration|reduc\w{1,4})"
        r"|(?:batch|step|update|iteration|head|branch|module|layer|expert|stage|loss|forward|backward)(?:es|s)?"
        r" (?:is |was |were |pass )?(?:ignored|skipped|dropped|discarded|bypassed)"
        r"|(?:skip|bypass)(?:s|es|p?ed|p?ing)? (?:\w{1,16} ){0,3}(?:head|branch|module|layer|expert|loss|forward)s?\b"
        r"|(?:no|0|zero) (?:positive|valid|matched|foreground|target|ground[- ]truth|active|routed|assigned)\w{0,3}\b"
        r"|(?:bad|empty|invalid|corrupt\w{0,3}|zero[- ]length) (?:micro-?)?batch\b.{0,40}skip\w{0,4}"
        r"|(?:micro-?)?(?:batch|step|update|iteration)\b[^\n]{0,80}[,;:] (?:is |was )?"
        r"(?:skipp(?:ed|ing)|dropped|ignored)\b"
        r"|(?:early[- ]stop\w{0,4}|patience) .{0,40}"
        r"(?:reached|triggered|exhausted|exceeded|used up|ran out|over\b|stopping)"
    ),
    "teardown-hang": (
        r"process groups? (?:is |was )?(?:destroyed|shut down|closed)"
        r"|(?:destroy|left|leav|shut)\w{0,3}(?: down)? (?:the |its |my )?(?:default )?process[ _]groups?"
        r"|(?:exit(?:s|ed|ing)?|leav(?:es|ing)|ended|finished)(?: process| now)?"
        r"(?: with| \()?(?: code| status| rc)?(?: |=|: ?)0\b(?![.\d])"
        r"|(?:codice(?: di uscita)?|code de sortie|exit[- ]code|código de (?:salida|saída)|код (?:выхода|завершения)"
        r"|退出码|終了コード) ?:? ?0\b"
    ),
    "uneven-inputs": (
        r"(?:epoch|pass|loop) \d{1,6}\b.{0,20}\b\d{1,9} (?:batches|samples|examples|steps)"
        r"|(?:exhausted|ran out of|out of|no more|fewer|short(?:er)? (?:by|of)|only \d+ of \d+)"
        r" (?:\w{1,16} ){0,3}(?:data|batch\w{0,2}|samples?|examples?|shards?|records?|items)"
        r"|(?:data\w{0,6}|iterator|loader|shards?|epoch|samples?) .{0,30}(?:exhausted|ended early|is empty|truncated)"
        r"|\b0 (?:samples|batches|examples|records)\b|StopIteration"
        r"|(?:drop|skip|discard|filter)(?:s|p?ed|p?ing)? (?:\w{1,16} ){0,3}"
        r"(?:samples?|batch(?:es)?|examples?|shards?|records?)"
    ),
    "rank-stuck-in-data-loading": (
        r"(?:next|get|wait\w{0,3}(?:[_ ]for)?)[_ ](?:(?:next|the|a)[_ ])?(?:batch|data|input)\b"
        r"|data[_ ]?(?:wait|load\w{0,3}|fetch)\b"
        r"|(?:read|fetch|load|open|stream|download|prefetch|decod)\w{0,4} .{0,80}"
        r"(?:shard|tar|parquet|arrow|bucket|blob|object|sample|batch|file|segment|data\w{0,6})"
        r"|(?:data ?loader|prefetch\w{0,4}|shard|s3|gcs|bucket|dataset)\b.{0,60}"
        r"(?:retr(?:y|ies|ying)|slow|wait\w{0,3}|stall\w{0,3}|timed? ?out|attempt|backoff|behind)"
        r"|(?:retr(?:y|ies|ying)|attempt \d)\b.{0,60}(?:read|get|fetch|download|shard|s3|http|object)"
        r"|\S{1,120}\.(?:npy|npz|pt|bin|tar|parquet|arrow|jsonl?|csv|tfrecord|records?|h5|hdf5|zarr|lmdb|txt|zst|gz|png"
        r"|jpe?g|wav|flac|mp[34]|tiff?)\b.{0,40}(?:not (?:there|found|ready|available|visible|here)|missing|absent"
        r"|does not exist|incomplete|try(?:ing)? again|retry\w{0,3}|wait\w{0,3})"
    ),
    "rank-stuck-in-user-code": (
        r"(?:retry(?:ing)?|(?:next|another) (?:try|attempt)|try(?:ing)? again|back(?:ing)? ?off|sleep(?:ing)?)\b"
        r".{0,20}\b\d{1,6}(?:\.\d{1,3})? ?(?:s|secs?|seconds?|m|min|minutes?)\b"
        r"|(?:attempt|try|retry) \d{1,6} ?(?:of|/) ?\d{1,6}\b"
    ),
}
"""What a rank that is late may say about itself: more than people write, the surest first."""
_ON_ITS_WAY = {cause: re.compile(rf"(?<![\w-])(?:{words})", re.IGNORECASE) for cause, words in _HELD_UP.items()}
_PHASES = {
    cause: re.compile(rf"(?:(?<![\w-])|(?<=mid-))(?:{words})(?!\w)", re.IGNORECASE) for cause, words in _WORDS.items()
}


def phase_in(text: str) -> str | None:
    """The cause whose part of a job a sentence speaks of; None where it is none of them, or several."""
    found = [cause for cause, words in _PHASES.items() if search(words, text)]
    return found[0] if len(found) == 1 else None


def activity_in(line: str) -> str | None:
    """The cause that fits what a rank says it is in, or what happened to it; None where it says nothing of the kind."""
    sure = ("storage-stall", "stale-lock-or-store", "cpu-starved", "rank-frozen", "conditional-collective")
    told = next((cause for cause in sure if search(_ON_ITS_WAY[cause], line)), None) or phase_in(line)
    told = told or next((cause for cause, words in _ON_ITS_WAY.items() if search(words, line)), None)
    # Names of events: `evt=ckpt_begin`.
    return told or (activity_in(line.replace("_", " ")) if "_" in line else None)
