"""What people call the parts of a job in which one rank may keep the others waiting."""

from __future__ import annotations

import re

_WORDS: dict[str, str] = {
    "rank-stuck-in-checkpoint": (
        r"checkpoint\w{0,3}|ckpts?|consolidat\w{1,4}|state_dict|safetensors|save_pretrained|save_state|save_model"
        r"|(?:sav|writ|export|upload|merg)(?:e|es|ing)(?: of)? (?:\w{1,12} ){0,2}"
        r"(?:model|weights|adapters?|shards?|states?)"
    ),
    "rank-stuck-in-evaluation": (
        r"evaluat(?:e|es|ion|ing)|validat(?:e|es|ion|ing)|predict(?:s|ion|ing)"
        r"|generat(?:es|ing)|generation (?:loop|phase|step|of)|beam search|inference"
        r"|test(?:ing)? (?:set|loop|epoch)"
    ),
    "rank-stuck-in-preprocessing": (
        r"tokeni[sz](?:e|es|ing|ation)|pre-?process(?:es|ing)?|download(?:s|ing)?|prepare_data"
        r"|(?:prepar|index|cach|pack|filter|convert|extract|shuffl|load|map)(?:e|es|ing)(?: of)? (?:\w{1,12} ){0,2}"
        r"(?:data\w{0,4}|corpus|texts?|index\w{0,2}|features?|examples?|documents?|images?)"
        r"|build(?:s|ing)?(?: of)? (?:\w{1,12} ){0,2}(?:index\w{0,2}|cache|datasets?|vocab\w{0,6})"
    ),
    "rank-stuck-in-compile": (
        r"torch\.compile|re-?compil\w{1,5}|compil(?:es|ing|ation)|autotun\w{1,4}|CUDA graph captur\w{1,3}"
        r"|triton kernels?"
    ),
}
_PHASES = {cause: re.compile(rf"(?<![\w-])(?:{words})(?!\w)", re.IGNORECASE) for cause, words in _WORDS.items()}


def phase_in(text: str) -> str | None:
    """The cause whose part of a job a sentence speaks of; None where it is none of them, or several."""
    found = [cause for cause, words in _PHASES.items() if words.search(text)]
    return found[0] if len(found) == 1 else None
